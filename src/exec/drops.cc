#include "exec/drops.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "exec/staging.h"
#include "graph/region.h"
#include "plan/align.h"

namespace commsched {
namespace {

uint64_t SideBytes(const Graph& graph, const Access& access, int rank,
                   const std::vector<uint64_t>& counts) {
  const Extent extent = ResolveRegion(graph, access, rank, counts);
  return extent.elements() * DTypeSize(graph.buffer(access.buffer).dtype);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Drops>> Drops::Create(
    const Program* program, const std::vector<OpId>& droppable,
    const std::vector<int>& group_rank, Device* device) {
  std::unique_ptr<Drops> drops(new Drops(program, device));
  const Plan& plan = *program->plan;
  drops->entry_of_launch_.assign(plan.launches.size(), Plan::kNone);
  size_t most_members = 1;
  for (OpId op : droppable) {
    for (LaunchId launch : plan.LaunchesOf(op)) {
      uint32_t& number = drops->entry_of_launch_[launch.value()];
      if (number != Plan::kNone) continue;
      number = static_cast<uint32_t>(drops->entries_.size());
      auto entry = std::make_unique<Entry>();
      entry->launch = launch.value();
      const Launch& planned = plan.launches[launch.value()];
      if (planned.coded) {
        return absl::UnimplementedError(
            absl::StrCat("launch ", program->LaunchName(launch.value()),
                         " travels through codec '", plan.options.codec.name,
                         "', so nothing can be left out of it"));
      }
      entry->has_result = planned.kind != CollectiveKind::kReduce ||
                          planned.root == group_rank[planned.group.value()];
      for (OpId member : planned.members) {
        entry->members.push_back(drops->MakeMember(member, group_rank));
        entry->scratch_bytes += AlignUp(entry->members.back()->input_bytes) +
                                AlignUp(entry->members.back()->output_bytes);
      }
      drops->scratch_bytes_ =
          std::max(drops->scratch_bytes_, entry->scratch_bytes);
      most_members = std::max(most_members, entry->members.size());
      drops->entries_.push_back(std::move(entry));
    }
  }
  drops->members_.reserve(most_members);
  if (drops->scratch_bytes_ != 0) {
    ASSIGN_OR_RETURN(drops->scratch_, device->Allocate(drops->scratch_bytes_));
  }
  return drops;
}

Drops::~Drops() {
  if (scratch_ != nullptr) device_->Free(scratch_);
}

std::unique_ptr<Drops::Member> Drops::MakeMember(
    OpId op, const std::vector<int>& group_rank) const {
  const Graph& graph = *program_.plan->graph;
  const CollectiveSpec& spec = graph.op(op).collective;
  auto member = std::make_unique<Member>();
  member->op = op;
  if (spec.kind == CollectiveKind::kBarrier) return member;
  auto rank_in = [&](const Access& access) {
    return access.region.kind == RegionKind::kShard
               ? group_rank[access.region.group.value()]
               : 0;
  };
  auto address_of = [&](const Access& access) {
    const Extent extent =
        ResolveRegion(graph, access, rank_in(access), spec.counts);
    return static_cast<char*>(program_.buffer_address[access.buffer.value()]) +
           extent.offset * DTypeSize(graph.buffer(access.buffer).dtype);
  };
  member->input = address_of(spec.input);
  member->input_bytes =
      SideBytes(graph, spec.input, rank_in(spec.input), spec.counts);
  member->output = address_of(spec.output);
  member->output_bytes =
      SideBytes(graph, spec.output, rank_in(spec.output), spec.counts);
  return member;
}

void Drops::Drop(OpId op, uint64_t generation) {
  for (LaunchId launch : program_.plan->LaunchesOf(op)) {
    Entry& entry = *entries_[entry_of_launch_[launch.value()]];
    for (const std::unique_ptr<Member>& member : entry.members) {
      if (member->op == op) member->dropped.Add(generation);
    }
    entry.dropped.Add(generation);
    dropped_.Add(generation);
  }
}

void Drops::Zero(void* to, uint64_t bytes) {
  if (stream_ != nullptr) {
    stream_->Zero(to, bytes);
  } else {
    std::memset(to, 0, bytes);
  }
}

void Drops::Copy(void* to, const void* from, uint64_t bytes) {
  Stage({.to = to, .from = from, .row_bytes = bytes});
}

void Drops::Stage(const RowCopy& step) {
  if (stream_ != nullptr) {
    stream_->Copy(step);
  } else {
    RunStaging({&step, 1});
  }
}

const commsched_launch_t* Drops::Begin(uint32_t launch, uint64_t generation,
                                       Stream* stream) {
  current_ = entries_[entry_of_launch_[launch]].get();
  stream_ = stream;
  for (const std::unique_ptr<Member>& member : current_->members) {
    member->is_dropped = member->dropped.In(generation);
  }
  const LaunchProgram& program = program_.launches[launch];
  call_ = program.call;
  switch (program_.plan->launches[launch].way) {
    case Way::kSingle:
    case Way::kGroup:
      BeginMembers(program);
      break;
    case Way::kInPlace:
      BeginMerged(program);
      break;
    case Way::kPack:
      BeginPacked(program);
      break;
  }
  return &call_;
}

// Each member is one of the call's: those left out get other addresses.
void Drops::BeginMembers(const LaunchProgram& launch) {
  members_.assign(launch.call.members,
                  launch.call.members + launch.call.num_members);
  char* at = static_cast<char*>(scratch_);
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = *current_->members[i];
    if (!member.is_dropped || member.input_bytes == 0) continue;
    Zero(at, member.input_bytes);
    members_[i].input = at;
    at += AlignUp(member.input_bytes);
    members_[i].output = at;
    at += AlignUp(member.output_bytes);
  }
  call_.members = members_.data();
}

// Members side by side travel as one, here from a copy.
void Drops::BeginMerged(const LaunchProgram& launch) {
  members_.assign(launch.call.members, launch.call.members + 1);
  char* at = static_cast<char*>(scratch_);
  members_[0].input = at;
  for (const std::unique_ptr<Member>& member : current_->members) {
    if (member->is_dropped) {
      Zero(at, member->input_bytes);
    } else {
      Copy(at, member->input, member->input_bytes);
    }
    at += member->input_bytes;
  }
  members_[0].output =
      static_cast<char*>(scratch_) +
      AlignUp(static_cast<uint64_t>(at - static_cast<char*>(scratch_)));
  call_.members = members_.data();
}

// Steps go round the members, part after part.
void Drops::BeginPacked(const LaunchProgram& launch) {
  const StagingStep* steps = program_.staging.data() + launch.staging_in.begin;
  for (uint32_t i = 0; i < launch.staging_in.count; ++i) {
    const Member& member = *current_->members[i % current_->members.size()];
    if (!member.is_dropped) {
      Stage(steps[i]);
      continue;
    }
    char* row = static_cast<char*>(steps[i].to);
    for (uint64_t r = 0; r < steps[i].rows; ++r) {
      Zero(row, steps[i].row_bytes);
      row += steps[i].to_stride;
    }
  }
}

void Drops::End() {
  const LaunchProgram& launch = program_.launches[current_->launch];
  const Way way = program_.plan->launches[current_->launch].way;
  if (way == Way::kPack) {
    const StagingStep* steps =
        program_.staging.data() + launch.staging_out.begin;
    for (uint32_t i = 0; i < launch.staging_out.count; ++i) {
      const Member& member = *current_->members[i % current_->members.size()];
      if (!member.is_dropped) Stage(steps[i]);
    }
  }
  if (way == Way::kInPlace) {
    const char* at = static_cast<const char*>(members_[0].output);
    for (const std::unique_ptr<Member>& member : current_->members) {
      if (!member->is_dropped && current_->has_result) {
        Copy(member->output, at, member->output_bytes);
      }
      at += member->output_bytes;
    }
  }
  current_ = nullptr;
}

}  // namespace commsched
