"""Memory of calls: where tensors are that the library takes as one packed whole."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Union

import torch

from ..errors import UnimplementedError


def check_dense(tensor: torch.Tensor, call: str) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        raise UnimplementedError(f"{call} of a tensor of layout {tensor.layout}: "
                                 "commsched takes strided ones", op=call)
    return tensor


class Place:
    """A packed whole at `address`, on the CUDA device `ordinal` or, if None, in the
    host's memory. `tensors` are what keeps it there; `finish`, if there is one, copies
    what was received to where the program wants it."""

    __slots__ = ("address", "finish", "ordinal", "tensors")

    def __init__(self, address: int,
                 tensors: Union[torch.Tensor, Sequence[torch.Tensor]],
                 ordinal: Optional[int],
                 finish: Optional[Callable[[], None]] = None) -> None:
        self.address = address
        self.tensors = tensors
        self.ordinal = ordinal
        self.finish = finish

    def all(self) -> List[torch.Tensor]:
        if isinstance(self.tensors, torch.Tensor):
            return [self.tensors]
        return list(self.tensors)


def ordinal_of(tensor: torch.Tensor) -> Optional[int]:
    return tensor.get_device() if tensor.is_cuda else None


def read(tensor: torch.Tensor, call: str) -> Place:
    """What is sent of one tensor."""
    packed = check_dense(tensor, call).contiguous()
    return Place(packed.data_ptr(), packed, ordinal_of(tensor))


def updated(tensor: torch.Tensor, call: str) -> Place:
    """What is sent and received in one tensor."""
    if check_dense(tensor, call).is_contiguous():
        return Place(tensor.data_ptr(), tensor, ordinal_of(tensor))
    packed = tensor.contiguous()
    return Place(packed.data_ptr(), packed, ordinal_of(tensor),
                 lambda: _copy(tensor, packed))


def written(tensor: torch.Tensor, call: str) -> Place:
    """What is received in one tensor."""
    if check_dense(tensor, call).is_contiguous():
        return Place(tensor.data_ptr(), tensor, ordinal_of(tensor))
    packed = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return Place(packed.data_ptr(), packed, ordinal_of(tensor),
                 lambda: _copy(tensor, packed))


def read_list(tensors: Sequence[torch.Tensor], call: str) -> Place:
    """What is sent of several tensors, one behind the other."""
    for tensor in tensors:
        check_dense(tensor, call)
    if _is_packed(tensors):
        return Place(_address(tensors), tensors, ordinal_of(tensors[0]))
    whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return Place(whole.data_ptr(), whole, ordinal_of(whole))


def written_list(tensors: Sequence[torch.Tensor], call: str) -> Place:
    """What is received in several tensors, one behind the other."""
    for tensor in tensors:
        check_dense(tensor, call)
    if _is_packed(tensors):
        return Place(_address(tensors), tensors, ordinal_of(tensors[0]))
    whole = torch.empty(sum(tensor.numel() for tensor in tensors),
                        dtype=tensors[0].dtype, device=tensors[0].device)
    return Place(whole.data_ptr(), whole, ordinal_of(whole),
                 lambda: _deal_out(whole, tensors))


def _is_packed(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they lie one behind the other, as what `chunk` cuts from a whole does."""
    at = 0
    for tensor in tensors:
        if not tensor.is_contiguous():
            return False
        if tensor.numel() == 0:
            continue
        address = tensor.data_ptr()
        if at and address != at:
            return False
        at = address + tensor.nbytes
    return True


def _address(tensors: Sequence[torch.Tensor]) -> int:
    return next((t.data_ptr() for t in tensors if t.numel()), 0)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    use_here(source)
    with torch.no_grad():
        target.copy_(source)


def _deal_out(whole: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    at = 0
    use_here(whole)
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(whole[at:at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()


def use_here(tensor: torch.Tensor) -> None:
    """Has the allocator know that the current stream uses `tensor`, which is ours."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.get_device()))


def finishes(places: Sequence[Optional[Place]]) -> Optional[Callable[[], None]]:
    """What copies the results of all `places`, if any has to be copied."""
    found: List[Callable[[], None]] = [
        place.finish for place in places if place is not None and place.finish]
    if not found:
        return None

    def finish() -> None:
        for each in found:
            each()

    return finish
