"""The page: its data, and how it behaves in a browser. Needs Chromium."""

import json
import re

import pytest

import chromium
from commsched.report.document import make_document
from commsched.report.html import write_html
from test_analysis import late_by

needs_chromium = pytest.mark.skipif(
    not chromium.PATH, reason="chromium is not installed"
)


@pytest.fixture
def html():
    return write_html(make_document(late_by(100), [], 0))


@pytest.fixture
def page(html, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html)
    with chromium.Page(path.as_uri(), tmp_path / "profile") as opened:
        yield opened


def test_the_page_names_no_other_file(html):
    assert not re.findall(r"(?:src|href)=|https?://|@import", html)


def test_a_name_cannot_end_the_script():
    traces = late_by(0)
    for trace in traces:
        trace.labels["dp"] = "</script><b>"
    html = write_html(make_document(traces, [], 0))
    assert html.count("</script>") == 1
    data = re.search(r"const data = (.*);\n", html).group(1)
    assert "</script><b>" in json.loads(data)["text"]


@needs_chromium
def test_the_timeline_is_drawn_without_network_or_errors(page):
    assert page.evaluate("boxes.length") >= 16
    assert page.evaluate("document.getElementById('text').textContent").startswith(
        "commsched report: 2 ranks, 4 steps"
    )
    colours = page.evaluate(
        """(() => { const seen = new Set(), pen = canvas.getContext("2d");
             const p = pen.getImageData(0, 0, canvas.width, canvas.height).data;
             for (let k = 0; k < p.length; k += 4)
               seen.add([p[k], p[k + 1], p[k + 2]].join());
             return [...seen]; })()"""
    )
    for drawn in ("91,141,239", "45,164,78", "212,167,44", "209,36,47"):
        assert drawn in colours
    assert page.named("Runtime.exceptionThrown") == []
    urls = [e["request"]["url"] for e in page.named("Network.requestWillBeSent")]
    assert [u for u in urls if not u.startswith("file:")] == []


@needs_chromium
def test_the_wheel_zooms_about_the_pointer(page):
    left, top = page.evaluate(
        "(b => [b.left, b.top])(canvas.getBoundingClientRect())"
    )
    place = "view.begin + (400 - LABEL) / (canvas.clientWidth - LABEL) * span()"
    page.evaluate("var span = () => view.end - view.begin")
    before, under = page.evaluate("span()"), page.evaluate(place)
    page.mouse("mouseWheel", left + 400, top + 40, deltaX=0, deltaY=-400)
    assert page.evaluate("span()") == pytest.approx(before / 2.718, rel=0.01)
    assert page.evaluate(place) == pytest.approx(under, rel=0.01)
    page.evaluate("document.getElementById('all').click()")
    assert page.evaluate("span()") == pytest.approx(before)


@needs_chromium
def test_dragging_moves_the_view(page):
    left, top = page.evaluate(
        "(b => [b.left, b.top])(canvas.getBoundingClientRect())"
    )
    begin = page.evaluate("view.begin")
    page.mouse("mousePressed", left + 500, top + 40, button="left", clickCount=1)
    page.mouse("mouseMoved", left + 300, top + 40, button="left", buttons=1)
    page.mouse("mouseReleased", left + 300, top + 40, button="left")
    assert page.evaluate("view.begin") > begin
    moved = page.evaluate("view.begin")
    page.mouse("mouseMoved", left + 200, top + 40)
    assert page.evaluate("view.begin") == moved


@needs_chromium
def test_hovering_says_what_a_collective_waited_for(page):
    x, y = page.evaluate(
        """(() => { const box = canvas.getBoundingClientRect();
             const hit = boxes.find(b => b[4].startsWith("all_reduce"));
             return [box.left + (hit[0] + hit[1]) / 2,
                     box.top + (hit[2] + hit[3]) / 2]; })()"""
    )
    page.mouse("mouseMoved", x, y)
    text = page.evaluate("hover.style.display == 'block' && hover.textContent")
    assert "all_reduce 1 of dp" in text
    assert "waited 100.00 ms for rank 1" in text
    page.mouse("mouseMoved", 1, 1)
    assert page.evaluate("hover.style.display") == "none"
