#include "cli/output_pump.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace commsched::cli {
namespace {

constexpr size_t kReadBytes = 16384;
// Of one stream, before others and signals are looked at again.
constexpr int kReadsPerTurn = 16;
// Back to the begin of the line; erase to its end.
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

OutputPump::OutputPump(Outlet* out, Outlet* err, bool prefixes)
    : out_(out), err_(err), prefixes_(prefixes) {}

void OutputPump::Add(int rank, Child* child) {
  auto source = std::make_unique<Source>();
  source->child = child;
  std::string prefix;
  if (prefixes_) prefix.append("[").append(std::to_string(rank)).append("] ");
  const bool draws = err_->is_terminal();
  if (prefixes_ || (draws && out_->is_terminal())) source->out.emplace(prefix);
  if (prefixes_ || draws) {
    source->err.emplace(prefix, draws ? LinePrefix::Output::kTerminal
                                      : LinePrefix::Output::kFile);
  }
  sources_.push_back(std::move(source));
}

void OutputPump::Say(const std::string& line) {
  Emit(err_, "commsched run: " + line + "\n");
  err_->Write();
}

void OutputPump::AddTo(std::vector<pollfd>* fds) const {
  for (const auto& source : sources_) {
    if (may_read(*out_)) fds->push_back({source->child->out(), POLLIN, 0});
    if (may_read(*err_)) fds->push_back({source->child->err(), POLLIN, 0});
  }
  for (const Outlet* outlet : {out_, err_}) {
    if (outlet->pending_bytes() > 0) {
      fds->push_back({outlet->fd(), POLLOUT, 0});
    }
  }
}

void OutputPump::Turn() {
  for (const auto& source : sources_) {
    Read(source.get(), /*is_error=*/false);
    Read(source.get(), /*is_error=*/true);
  }
  out_->Write();
  err_->Write();
}

void OutputPump::Read(Source* source, bool is_error) {
  Child& child = *source->child;
  std::optional<LinePrefix>& prefix = is_error ? source->err : source->out;
  Outlet* const outlet = is_error ? err_ : out_;
  char bytes[kReadBytes];
  for (int i = 0; i < kReadsPerTurn && may_read(*outlet); ++i) {
    const int fd = is_error ? child.err() : child.out();
    if (fd < 0) return;
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // Nothing now.
    if (n == 0) {
      is_error ? child.CloseErr() : child.CloseOut();
      if (bar_of_ == source && is_error) EraseBar();
      return;
    }
    const std::string piece(bytes, static_cast<size_t>(n));
    const std::string lines = prefix ? prefix->Add(piece) : piece;
    if (!lines.empty()) Emit(outlet, lines);
    if (is_error && err_->is_terminal()) DrawBar(source);
    outlet->Write();
  }
}

// Standard output and standard error are taken for the same terminal if both
// are one: whatever goes there replaces the bar, and draws it again below.
void OutputPump::Emit(Outlet* outlet, const std::string& lines) {
  const bool replaces = outlet->is_terminal() && !bar_.empty();
  outlet->Add(replaces ? kEraseLine + lines + bar_ : lines);
}

// The last one that moved is shown.
void OutputPump::DrawBar(const Source* source) {
  std::string bar = source->err->bar();
  if (bar.empty() && bar_of_ != source) return;
  if (bar == bar_) return;
  err_->Add(kEraseLine + bar);
  bar_ = std::move(bar);
  bar_of_ = bar_.empty() ? nullptr : source;
}

void OutputPump::EraseBar() {
  if (bar_.empty()) return;
  err_->Add(kEraseLine);
  bar_.clear();
  bar_of_ = nullptr;
}

void OutputPump::CloseUnread() {
  for (const auto& source : sources_) {
    if (out_->has_no_reader()) source->child->CloseOut();
    if (err_->has_no_reader()) source->child->CloseErr();
  }
}

bool OutputPump::IsOver() const {
  for (const auto& source : sources_) {
    if (source->child->out() >= 0 || source->child->err() >= 0) return false;
  }
  return pending_bytes() == 0;
}

void OutputPump::Finish() {
  EraseBar();
  for (const auto& source : sources_) {
    if (source->out) out_->Add(source->out->End());
    if (source->err) err_->Add(source->err->End());
  }
  out_->Write();
  err_->Write();
}

}  // namespace commsched::cli
