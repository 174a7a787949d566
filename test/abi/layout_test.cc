// Pins the layout of every public struct: what a program compiled today holds
// in its memory. A field that moves breaks such programs, so a failure here is
// answered by undoing the change. A new field goes at the end; it then changes
// a size below, and nothing else.
#include <cstddef>

#include "commsched/commsched.h"
#include "gtest/gtest.h"

namespace {

static_assert(sizeof(void*) == 8, "the numbers are those of 64-bit machines");

#define EXPECT_OFFSET(type, field, expected) \
  EXPECT_EQ(offsetof(type, field), expected##u) << #type "." #field
#define EXPECT_SIZE(type, expected) \
  EXPECT_EQ(sizeof(type), expected##u) << #type

TEST(LayoutTest, ScalarsKeepTheirSizes) {
  EXPECT_SIZE(commsched_status_t, 4);
  EXPECT_SIZE(commsched_dtype_t, 4);
  EXPECT_SIZE(commsched_reduce_op_t, 4);
  EXPECT_SIZE(commsched_collective_t, 4);
  EXPECT_SIZE(commsched_op_id_t, 4);
  EXPECT_SIZE(commsched_buffer_id_t, 4);
  EXPECT_SIZE(commsched_group_id_t, 4);
  EXPECT_SIZE(commsched_stream_kind_t, 4);
  EXPECT_SIZE(commsched_ownership_t, 4);
  EXPECT_SIZE(commsched_region_kind_t, 4);
  EXPECT_SIZE(commsched_access_mode_t, 4);
  EXPECT_SIZE(commsched_schedule_t, 4);
  EXPECT_SIZE(commsched_format_t, 4);
}

TEST(LayoutTest, WorldDescKeepsItsFields) {
  EXPECT_OFFSET(commsched_world_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_world_desc_t, abi_version, 8);
  EXPECT_OFFSET(commsched_world_desc_t, size, 12);
  EXPECT_OFFSET(commsched_world_desc_t, backend, 16);
  EXPECT_OFFSET(commsched_world_desc_t, backend_config, 24);
  EXPECT_OFFSET(commsched_world_desc_t, device_kind, 32);
  EXPECT_OFFSET(commsched_world_desc_t, device, 36);
  EXPECT_SIZE(commsched_world_desc_t, 40);
  EXPECT_OFFSET(commsched_join_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_join_desc_t, abi_version, 8);
  EXPECT_OFFSET(commsched_join_desc_t, rank, 12);
  EXPECT_OFFSET(commsched_join_desc_t, size, 16);
  EXPECT_OFFSET(commsched_join_desc_t, epoch, 24);
  EXPECT_OFFSET(commsched_join_desc_t, control, 32);
  EXPECT_OFFSET(commsched_join_desc_t, token, 40);
  EXPECT_OFFSET(commsched_join_desc_t, backend, 48);
  EXPECT_OFFSET(commsched_join_desc_t, backend_config, 56);
  EXPECT_OFFSET(commsched_join_desc_t, timeout_ns, 64);
  EXPECT_OFFSET(commsched_join_desc_t, device_kind, 72);
  EXPECT_OFFSET(commsched_join_desc_t, device, 76);
  EXPECT_OFFSET(commsched_join_desc_t, link_profile, 80);
  EXPECT_SIZE(commsched_join_desc_t, 88);
  EXPECT_OFFSET(commsched_control_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_control_desc_t, abi_version, 8);
  EXPECT_OFFSET(commsched_control_desc_t, size, 12);
  EXPECT_OFFSET(commsched_control_desc_t, epoch, 16);
  EXPECT_OFFSET(commsched_control_desc_t, address, 24);
  EXPECT_OFFSET(commsched_control_desc_t, port, 32);
  EXPECT_OFFSET(commsched_control_desc_t, token, 40);
  EXPECT_OFFSET(commsched_control_desc_t, silence_ns, 48);
  EXPECT_OFFSET(commsched_control_desc_t, on_lost, 56);
  EXPECT_OFFSET(commsched_control_desc_t, on_departed, 64);
  EXPECT_OFFSET(commsched_control_desc_t, user, 72);
  EXPECT_SIZE(commsched_control_desc_t, 80);
  EXPECT_OFFSET(commsched_gather_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_gather_desc_t, name, 8);
  EXPECT_OFFSET(commsched_gather_desc_t, data, 16);
  EXPECT_OFFSET(commsched_gather_desc_t, bytes, 24);
  EXPECT_OFFSET(commsched_gather_desc_t, timeout_ns, 32);
  EXPECT_OFFSET(commsched_gather_desc_t, take, 40);
  EXPECT_OFFSET(commsched_gather_desc_t, user, 48);
  EXPECT_SIZE(commsched_gather_desc_t, 56);
}

TEST(LayoutTest, StreamsNeverGrow) {
  EXPECT_OFFSET(commsched_stream_t, kind, 0);
  EXPECT_OFFSET(commsched_stream_t, reserved, 4);
  EXPECT_OFFSET(commsched_stream_t, native, 8);
  EXPECT_SIZE(commsched_stream_t, 16);
}

TEST(LayoutTest, AxesAndBindingsNeverGrow) {
  EXPECT_OFFSET(commsched_axis_t, name, 0);
  EXPECT_OFFSET(commsched_axis_t, size, 8);
  EXPECT_SIZE(commsched_axis_t, 16);
  EXPECT_OFFSET(commsched_binding_t, buffer, 0);
  EXPECT_OFFSET(commsched_binding_t, reserved, 4);
  EXPECT_OFFSET(commsched_binding_t, address, 8);
  EXPECT_OFFSET(commsched_binding_t, bytes, 16);
  EXPECT_SIZE(commsched_binding_t, 24);
}

TEST(LayoutTest, AccessesNeverGrow) {
  EXPECT_OFFSET(commsched_access_t, buffer, 0);
  EXPECT_OFFSET(commsched_access_t, mode, 4);
  EXPECT_OFFSET(commsched_access_t, region, 8);
  EXPECT_OFFSET(commsched_access_t, group, 12);
  EXPECT_OFFSET(commsched_access_t, offset, 16);
  EXPECT_OFFSET(commsched_access_t, count, 24);
  EXPECT_OFFSET(commsched_access_t, rows, 32);
  EXPECT_OFFSET(commsched_access_t, stride, 40);
  EXPECT_SIZE(commsched_access_t, 48);
}

TEST(LayoutTest, BufferDescKeepsItsFields) {
  EXPECT_OFFSET(commsched_buffer_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_buffer_desc_t, name, 8);
  EXPECT_OFFSET(commsched_buffer_desc_t, dtype, 16);
  EXPECT_OFFSET(commsched_buffer_desc_t, ownership, 20);
  EXPECT_OFFSET(commsched_buffer_desc_t, count, 24);
  EXPECT_OFFSET(commsched_buffer_desc_t, place_group, 32);
  EXPECT_OFFSET(commsched_buffer_desc_t, reserved, 36);
  EXPECT_SIZE(commsched_buffer_desc_t, 40);
}

TEST(LayoutTest, ComputeDescKeepsItsFields) {
  EXPECT_OFFSET(commsched_compute_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_compute_desc_t, name, 8);
  EXPECT_OFFSET(commsched_compute_desc_t, accesses, 16);
  EXPECT_OFFSET(commsched_compute_desc_t, after, 24);
  EXPECT_OFFSET(commsched_compute_desc_t, num_accesses, 32);
  EXPECT_OFFSET(commsched_compute_desc_t, num_after, 36);
  EXPECT_OFFSET(commsched_compute_desc_t, lane, 40);
  EXPECT_OFFSET(commsched_compute_desc_t, priority, 44);
  EXPECT_OFFSET(commsched_compute_desc_t, cost_ns, 48);
  EXPECT_OFFSET(commsched_compute_desc_t, flops, 56);
  EXPECT_OFFSET(commsched_compute_desc_t, bytes, 64);
  EXPECT_SIZE(commsched_compute_desc_t, 72);
}

TEST(LayoutTest, CollectiveDescKeepsItsFields) {
  EXPECT_OFFSET(commsched_collective_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_collective_desc_t, name, 8);
  EXPECT_OFFSET(commsched_collective_desc_t, kind, 16);
  EXPECT_OFFSET(commsched_collective_desc_t, reduce_op, 20);
  EXPECT_OFFSET(commsched_collective_desc_t, group, 24);
  EXPECT_OFFSET(commsched_collective_desc_t, root, 28);
  EXPECT_OFFSET(commsched_collective_desc_t, input, 32);
  EXPECT_OFFSET(commsched_collective_desc_t, output, 80);
  EXPECT_OFFSET(commsched_collective_desc_t, counts, 128);
  EXPECT_OFFSET(commsched_collective_desc_t, num_counts, 136);
  EXPECT_OFFSET(commsched_collective_desc_t, num_after, 140);
  EXPECT_OFFSET(commsched_collective_desc_t, after, 144);
  EXPECT_OFFSET(commsched_collective_desc_t, priority, 152);
  EXPECT_OFFSET(commsched_collective_desc_t, peer_offset, 156);
  EXPECT_OFFSET(commsched_collective_desc_t, lossy, 160);
  EXPECT_SIZE(commsched_collective_desc_t, 168);
}

TEST(LayoutTest, RoleDesc) {
  EXPECT_OFFSET(commsched_role_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_role_desc_t, graph, 8);
  EXPECT_OFFSET(commsched_role_desc_t, profile, 16);
  EXPECT_OFFSET(commsched_role_desc_t, role_of_member, 24);
  EXPECT_OFFSET(commsched_role_desc_t, num_groups, 32);
  EXPECT_OFFSET(commsched_role_desc_t, reserved, 36);
  EXPECT_EQ(sizeof(commsched_role_desc_t), 40u);
}

TEST(LayoutTest, PlanOptionsKeepTheirFields) {
  EXPECT_OFFSET(commsched_plan_options_t, struct_size, 0);
  EXPECT_OFFSET(commsched_plan_options_t, schedule, 8);
  EXPECT_OFFSET(commsched_plan_options_t, deterministic, 12);
  EXPECT_OFFSET(commsched_plan_options_t, max_launches_in_flight, 16);
  EXPECT_OFFSET(commsched_plan_options_t, num_comm_lanes, 20);
  EXPECT_OFFSET(commsched_plan_options_t, max_bytes_in_flight, 24);
  EXPECT_OFFSET(commsched_plan_options_t, coalesce_bytes, 32);
  EXPECT_OFFSET(commsched_plan_options_t, arena_bytes, 40);
  EXPECT_OFFSET(commsched_plan_options_t, partition_bytes, 48);
  EXPECT_OFFSET(commsched_plan_options_t, priority, 56);
  EXPECT_OFFSET(commsched_plan_options_t, policy, 64);
  EXPECT_OFFSET(commsched_plan_options_t, codec, 72);
  EXPECT_OFFSET(commsched_plan_options_t, backend, 80);
  EXPECT_OFFSET(commsched_plan_options_t, host_of_rank, 88);
  EXPECT_OFFSET(commsched_plan_options_t, num_ranks, 96);
  EXPECT_SIZE(commsched_plan_options_t, 104);
}

TEST(LayoutTest, CostProfileKeepsItsFields) {
  EXPECT_OFFSET(commsched_cost_profile_t, struct_size, 0);
  EXPECT_OFFSET(commsched_cost_profile_t, link_bytes_per_s, 8);
  EXPECT_OFFSET(commsched_cost_profile_t, link_latency_ns, 16);
  EXPECT_OFFSET(commsched_cost_profile_t, launch_ns, 24);
  EXPECT_OFFSET(commsched_cost_profile_t, copy_bytes_per_s, 32);
  EXPECT_OFFSET(commsched_cost_profile_t, flops_per_s, 40);
  EXPECT_OFFSET(commsched_cost_profile_t, memory_bytes_per_s, 48);
  EXPECT_OFFSET(commsched_cost_profile_t, num_ranks_sharing, 56);
  EXPECT_OFFSET(commsched_cost_profile_t, num_cores, 60);
  EXPECT_OFFSET(commsched_cost_profile_t, op_cost_ns, 64);
  EXPECT_OFFSET(commsched_cost_profile_t, num_ops, 72);
  EXPECT_SIZE(commsched_cost_profile_t, 80);
}

TEST(LayoutTest, LinkProfileKeepsItsFields) {
  EXPECT_OFFSET(commsched_link_level_t, latency_ns, 0);
  EXPECT_OFFSET(commsched_link_level_t, bytes_per_s, 8);
  EXPECT_OFFSET(commsched_link_level_t, message_ns, 16);
  EXPECT_SIZE(commsched_link_level_t, 24);
  EXPECT_OFFSET(commsched_link_profile_t, struct_size, 0);
  EXPECT_OFFSET(commsched_link_profile_t, host, 8);
  EXPECT_OFFSET(commsched_link_profile_t, network, 32);
  EXPECT_SIZE(commsched_link_profile_t, 56);
}

TEST(LayoutTest, PredictionKeepsItsFields) {
  EXPECT_OFFSET(commsched_prediction_t, struct_size, 0);
  EXPECT_OFFSET(commsched_prediction_t, step_ns, 8);
  EXPECT_OFFSET(commsched_prediction_t, compute_ns, 16);
  EXPECT_OFFSET(commsched_prediction_t, comm_ns, 24);
  EXPECT_OFFSET(commsched_prediction_t, exposed_ns, 32);
  EXPECT_OFFSET(commsched_prediction_t, lower_bound_ns, 40);
  EXPECT_OFFSET(commsched_prediction_t, bound_compute_ns, 48);
  EXPECT_OFFSET(commsched_prediction_t, bound_link_ns, 56);
  EXPECT_OFFSET(commsched_prediction_t, bound_cycle_ns, 64);
  EXPECT_OFFSET(commsched_prediction_t, bound_phases_ns, 72);
  EXPECT_OFFSET(commsched_prediction_t, peak_bytes_in_flight, 80);
  EXPECT_OFFSET(commsched_prediction_t, exposed_cap_ns, 88);
  EXPECT_OFFSET(commsched_prediction_t, exposed_dependency_ns, 96);
  EXPECT_OFFSET(commsched_prediction_t, exposed_order_ns, 104);
  EXPECT_OFFSET(commsched_prediction_t, exposed_link_ns, 112);
  EXPECT_OFFSET(commsched_prediction_t, exposed_straggler_ns, 120);
  EXPECT_SIZE(commsched_prediction_t, 128);
}

TEST(LayoutTest, AgreementsKeepTheirFields) {
  EXPECT_OFFSET(commsched_fact_t, subject, 0);
  EXPECT_OFFSET(commsched_fact_t, value, 8);
  EXPECT_SIZE(commsched_fact_t, 16);
  EXPECT_OFFSET(commsched_agree_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_agree_desc_t, name, 8);
  EXPECT_OFFSET(commsched_agree_desc_t, meet, 16);
  EXPECT_OFFSET(commsched_agree_desc_t, compare, 24);
  EXPECT_OFFSET(commsched_agree_desc_t, facts, 32);
  EXPECT_OFFSET(commsched_agree_desc_t, num_facts, 40);
  EXPECT_OFFSET(commsched_agree_desc_t, timeout_ns, 48);
  EXPECT_SIZE(commsched_agree_desc_t, 56);
}

TEST(LayoutTest, PlanInfoKeepsItsFields) {
  EXPECT_OFFSET(commsched_plan_info_t, struct_size, 0);
  EXPECT_OFFSET(commsched_plan_info_t, num_ops, 8);
  EXPECT_OFFSET(commsched_plan_info_t, num_launches, 16);
  EXPECT_OFFSET(commsched_plan_info_t, num_collectives, 24);
  EXPECT_OFFSET(commsched_plan_info_t, num_waits, 32);
  EXPECT_OFFSET(commsched_plan_info_t, num_waits_implied, 40);
  EXPECT_OFFSET(commsched_plan_info_t, arena_bytes, 48);
  EXPECT_OFFSET(commsched_plan_info_t, max_launch_bytes, 56);
  EXPECT_OFFSET(commsched_plan_info_t, fingerprint, 64);
  EXPECT_OFFSET(commsched_plan_info_t, place_group_bytes, 80);
  EXPECT_SIZE(commsched_plan_info_t, 88);
}

TEST(LayoutTest, SessionDescKeepsItsFields) {
  EXPECT_OFFSET(commsched_session_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_session_desc_t, context, 8);
  EXPECT_OFFSET(commsched_session_desc_t, plan, 16);
  EXPECT_OFFSET(commsched_session_desc_t, groups, 24);
  EXPECT_OFFSET(commsched_session_desc_t, bindings, 32);
  EXPECT_OFFSET(commsched_session_desc_t, lanes, 40);
  EXPECT_OFFSET(commsched_session_desc_t, trace, 48);
  EXPECT_OFFSET(commsched_session_desc_t, num_groups, 56);
  EXPECT_OFFSET(commsched_session_desc_t, num_bindings, 60);
  EXPECT_OFFSET(commsched_session_desc_t, num_lanes, 64);
  EXPECT_OFFSET(commsched_session_desc_t, reserved, 68);
  EXPECT_OFFSET(commsched_session_desc_t, launch_timeout_ns, 72);
  EXPECT_OFFSET(commsched_session_desc_t, observers, 80);
  EXPECT_OFFSET(commsched_session_desc_t, flight_path, 88);
  EXPECT_OFFSET(commsched_session_desc_t, progress, 96);
  EXPECT_OFFSET(commsched_session_desc_t, reserved2, 100);
  EXPECT_OFFSET(commsched_session_desc_t, allocator, 104);
  EXPECT_SIZE(commsched_session_desc_t, 112);
  EXPECT_OFFSET(commsched_allocator_t, struct_size, 0);
  EXPECT_OFFSET(commsched_allocator_t, user, 8);
  EXPECT_OFFSET(commsched_allocator_t, allocate, 16);
  EXPECT_OFFSET(commsched_allocator_t, release, 24);
  EXPECT_OFFSET(commsched_allocator_t, trim, 32);
  EXPECT_SIZE(commsched_allocator_t, 40);
}

TEST(LayoutTest, SessionCountersKeepTheirFields) {
  EXPECT_OFFSET(commsched_session_counters_t, struct_size, 0);
  EXPECT_OFFSET(commsched_session_counters_t, steps, 8);
  EXPECT_OFFSET(commsched_session_counters_t, launches, 16);
  EXPECT_OFFSET(commsched_session_counters_t, collectives, 24);
  EXPECT_OFFSET(commsched_session_counters_t, bytes, 32);
  EXPECT_OFFSET(commsched_session_counters_t, peak_launches_in_flight, 40);
  EXPECT_OFFSET(commsched_session_counters_t, peak_bytes_in_flight, 48);
  EXPECT_OFFSET(commsched_session_counters_t, lock_contentions, 56);
  EXPECT_OFFSET(commsched_session_counters_t, events_created, 64);
  EXPECT_OFFSET(commsched_session_counters_t, streams_created, 72);
  EXPECT_OFFSET(commsched_session_counters_t, registrations, 80);
  EXPECT_OFFSET(commsched_session_counters_t, stall_due_ns, 88);
  EXPECT_OFFSET(commsched_session_counters_t, stall_wait_ns, 96);
  EXPECT_OFFSET(commsched_session_counters_t, stall_window_ns, 104);
  EXPECT_OFFSET(commsched_session_counters_t, stall_requests_ns, 112);
  EXPECT_OFFSET(commsched_session_counters_t, arena_bytes, 120);
  EXPECT_OFFSET(commsched_session_counters_t, registered_bytes, 128);
  EXPECT_OFFSET(commsched_session_counters_t, allocation_retries, 136);
  EXPECT_OFFSET(commsched_session_counters_t, backend_peak_bytes, 144);
  EXPECT_OFFSET(commsched_session_counters_t, launch_allocations, 152);
  EXPECT_SIZE(commsched_session_counters_t, 160);
}

TEST(LayoutTest, LaunchEstimatesKeepTheirFields) {
  EXPECT_OFFSET(commsched_launch_estimate_t, struct_size, 0);
  EXPECT_OFFSET(commsched_launch_estimate_t, algorithm, 8);
  EXPECT_OFFSET(commsched_launch_estimate_t, predicted_ns, 16);
  EXPECT_OFFSET(commsched_launch_estimate_t, link_bytes, 24);
  EXPECT_OFFSET(commsched_launch_estimate_t, messages, 32);
  EXPECT_OFFSET(commsched_launch_estimate_t, pieces, 40);
  EXPECT_OFFSET(commsched_launch_estimate_t, num_hosts, 44);
  EXPECT_SIZE(commsched_launch_estimate_t, 48);
}

TEST(LayoutTest, LateBindingsNeverGrow) {
  EXPECT_OFFSET(commsched_late_binding_t, buffer, 0);
  EXPECT_OFFSET(commsched_late_binding_t, num_counts, 4);
  EXPECT_OFFSET(commsched_late_binding_t, address, 8);
  EXPECT_OFFSET(commsched_late_binding_t, count, 16);
  EXPECT_OFFSET(commsched_late_binding_t, counts, 24);
  EXPECT_SIZE(commsched_late_binding_t, 32);
}

TEST(LayoutTest, StepMetricsKeepTheirFields) {
  EXPECT_OFFSET(commsched_step_metrics_t, struct_size, 0);
  EXPECT_OFFSET(commsched_step_metrics_t, step, 8);
  EXPECT_OFFSET(commsched_step_metrics_t, step_ns, 16);
  EXPECT_OFFSET(commsched_step_metrics_t, compute_ns, 24);
  EXPECT_OFFSET(commsched_step_metrics_t, comm_ns, 32);
  EXPECT_OFFSET(commsched_step_metrics_t, exposed_ns, 40);
  EXPECT_OFFSET(commsched_step_metrics_t, num_launches, 48);
  EXPECT_OFFSET(commsched_step_metrics_t, num_collectives, 56);
  EXPECT_OFFSET(commsched_step_metrics_t, peak_bytes_in_flight, 64);
  EXPECT_SIZE(commsched_step_metrics_t, 72);
}

TEST(LayoutTest, BlameKeepsItsFields) {
  EXPECT_OFFSET(commsched_blame_t, struct_size, 0);
  EXPECT_OFFSET(commsched_blame_t, step, 8);
  EXPECT_OFFSET(commsched_blame_t, exposed_ns, 16);
  EXPECT_OFFSET(commsched_blame_t, cap_ns, 24);
  EXPECT_OFFSET(commsched_blame_t, dependency_ns, 32);
  EXPECT_OFFSET(commsched_blame_t, order_ns, 40);
  EXPECT_OFFSET(commsched_blame_t, link_ns, 48);
  EXPECT_OFFSET(commsched_blame_t, straggler_ns, 56);
  EXPECT_SIZE(commsched_blame_t, 64);
}

TEST(LayoutTest, EnumeratorsKeepTheirNumbers) {
  EXPECT_EQ(COMMSCHED_UNAUTHENTICATED, 16);
  EXPECT_EQ(COMMSCHED_U8, 7);
  EXPECT_EQ(COMMSCHED_BOOL, 16);
  EXPECT_EQ(COMMSCHED_PROD, 4);
  EXPECT_EQ(COMMSCHED_PREMUL_SUM, 8);
  EXPECT_EQ(COMMSCHED_RECV, 8);
  EXPECT_EQ(COMMSCHED_LATE_BOUND, 2);
  EXPECT_EQ(COMMSCHED_TILE, 3);
  EXPECT_EQ(COMMSCHED_READ_WRITE, 3);
  EXPECT_EQ(COMMSCHED_SERIAL, 1);
  EXPECT_EQ(COMMSCHED_JSON, 1);
  EXPECT_EQ(COMMSCHED_STREAM_CUDA, 2);
  EXPECT_EQ(COMMSCHED_LOG_ERROR, 3);
  EXPECT_EQ(COMMSCHED_ABI_VERSION, 1);
}

TEST(LayoutTest, EveryInitSetsTheSizeAndWhatHeadersSay) {
  EXPECT_EQ(commsched_world_desc_init().struct_size, 40u);
  EXPECT_EQ(commsched_world_desc_init().abi_version, 1u);
  EXPECT_EQ(commsched_world_desc_init().backend, nullptr);
  EXPECT_EQ(commsched_join_desc_init().struct_size, 88u);
  EXPECT_EQ(commsched_join_desc_init().abi_version, 1u);
  EXPECT_EQ(commsched_join_desc_init().rank, -1);
  EXPECT_EQ(commsched_control_desc_init().struct_size, 80u);
  EXPECT_EQ(commsched_control_desc_init().abi_version, 1u);
  EXPECT_EQ(commsched_buffer_desc_init().struct_size, 40u);
  EXPECT_EQ(commsched_compute_desc_init().struct_size, 72u);
  EXPECT_EQ(commsched_collective_desc_init().struct_size, 168u);
  EXPECT_EQ(commsched_plan_options_init().struct_size, 104u);
  EXPECT_EQ(commsched_plan_options_init().coalesce_bytes,
            COMMSCHED_COALESCE_AUTO);
  EXPECT_EQ(commsched_link_profile_init().struct_size, 56u);
  EXPECT_EQ(commsched_link_profile_init().network.bytes_per_s, 1.25e9);
  EXPECT_EQ(commsched_cost_profile_init().struct_size, 80u);
  EXPECT_EQ(commsched_prediction_init().struct_size, 128u);
  EXPECT_EQ(commsched_plan_info_init().struct_size, 88u);
  EXPECT_EQ(commsched_session_desc_init().struct_size, 112u);
  EXPECT_EQ(commsched_session_counters_init().struct_size, 160u);
  EXPECT_EQ(commsched_launch_estimate_init().struct_size, 48u);
  EXPECT_EQ(commsched_allocator_init().struct_size, 40u);
  EXPECT_EQ(commsched_step_metrics_init().struct_size, 72u);
}

TEST(LayoutTest, ChannelsKeepTheirFields) {
  EXPECT_OFFSET(commsched_channel_desc_t, struct_size, 0);
  EXPECT_OFFSET(commsched_channel_desc_t, completions, 8);
  EXPECT_OFFSET(commsched_channel_desc_t, key, 16);
  EXPECT_OFFSET(commsched_channel_desc_t, max_in_flight, 24);
  EXPECT_OFFSET(commsched_channel_desc_t, max_transfers, 28);
  EXPECT_OFFSET(commsched_channel_desc_t, max_bytes_in_flight, 32);
  EXPECT_OFFSET(commsched_channel_desc_t, launch_timeout_ns, 40);
  EXPECT_OFFSET(commsched_channel_desc_t, flight_path, 48);
  EXPECT_OFFSET(commsched_channel_desc_t, trace, 56);
  EXPECT_SIZE(commsched_channel_desc_t, 64);
  EXPECT_OFFSET(commsched_channel_op_t, struct_size, 0);
  EXPECT_OFFSET(commsched_channel_op_t, kind, 8);
  EXPECT_OFFSET(commsched_channel_op_t, dtype, 12);
  EXPECT_OFFSET(commsched_channel_op_t, reduce_op, 16);
  EXPECT_OFFSET(commsched_channel_op_t, peer, 20);
  EXPECT_OFFSET(commsched_channel_op_t, tag, 24);
  EXPECT_OFFSET(commsched_channel_op_t, input, 32);
  EXPECT_OFFSET(commsched_channel_op_t, output, 40);
  EXPECT_OFFSET(commsched_channel_op_t, count, 48);
  EXPECT_OFFSET(commsched_channel_op_t, counts, 56);
  EXPECT_OFFSET(commsched_channel_op_t, num_counts, 64);
  EXPECT_OFFSET(commsched_channel_op_t, deterministic, 68);
  EXPECT_OFFSET(commsched_channel_op_t, user, 72);
  EXPECT_OFFSET(commsched_channel_op_t, scale, 80);
  EXPECT_SIZE(commsched_channel_op_t, 88);
  EXPECT_OFFSET(commsched_completion_t, key, 0);
  EXPECT_OFFSET(commsched_completion_t, request, 8);
  EXPECT_OFFSET(commsched_completion_t, user, 16);
  EXPECT_OFFSET(commsched_completion_t, status, 24);
  EXPECT_SIZE(commsched_completion_t, 32);
}

}  // namespace
