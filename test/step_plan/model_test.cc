#include "engine/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "test/step_plan/parameter_desc.h"

namespace commsched::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ModelTest : public testing::Test {
 protected:
  // The id, or the test has failed.
  uint32_t Module(const char* name) {
    uint32_t id = 0;
    EXPECT_TRUE(model_.AddModule(name, 1, 2, &id).ok());
    return id;
  }
  uint32_t Parameter(uint32_t module, const char* name,
                     const std::vector<uint64_t>& dims) {
    uint32_t id = 0;
    EXPECT_TRUE(
        model_.AddParameter(ParameterDesc(module, name, dims), &id).ok());
    return id;
  }
  static void ExpectRefused(const Status& status, commsched_status_t code,
                            const char* text) {
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr(text));
  }

  Model model_;
  uint32_t id_ = 77;  // What a refused call must not write.
};

TEST_F(ModelTest, ItHasWhatWasAdded) {
  const uint32_t embedding = Module("embedding");
  const uint32_t head = Module("head");
  const uint32_t words = Parameter(embedding, "words", {8, 4});
  const uint32_t bias = Parameter(head, "bias", {4});
  ASSERT_TRUE(model_.UseParameter(head, words).ok());
  EXPECT_THAT(model_.ModuleNames(), ElementsAre("embedding", "head"));
  EXPECT_THAT(model_.modules()[head].used, ElementsAre(bias, words));
  EXPECT_EQ(model_.parameters()[words].count, 32u);
  EXPECT_EQ(model_.parameters()[words].num_dims, 2u);
  EXPECT_EQ(model_.parameters()[bias].module, head);
  EXPECT_TRUE(model_.HasParameter("words"));
  EXPECT_FALSE(model_.HasParameter("embedding"));
}

TEST_F(ModelTest, NamesAreTakenOnce) {
  const uint32_t module = Module("block");
  ExpectRefused(model_.AddModule("block", 1, 1, &id_), COMMSCHED_ALREADY_EXISTS,
                "another module is called 'block'");
  ExpectRefused(model_.AddModule("", 1, 1, &id_), COMMSCHED_INVALID_ARGUMENT,
                "a module needs a name");
  Parameter(module, "w", {4});
  ExpectRefused(model_.AddParameter(ParameterDesc(module, "w", {4}), &id_),
                COMMSCHED_ALREADY_EXISTS, "another parameter is called 'w'");
  EXPECT_EQ(model_.modules().size(), 1u);
  EXPECT_EQ(model_.parameters().size(), 1u);
  EXPECT_EQ(id_, 77u);
}

TEST_F(ModelTest, SizesAreChecked) {
  const uint32_t module = Module("block");
  const std::vector<uint64_t> large(2, uint64_t{1} << 30);
  ExpectRefused(model_.AddParameter(ParameterDesc(module, "w", large), &id_),
                COMMSCHED_OUT_OF_RANGE, "more than 2^40 elements");
  ExpectRefused(model_.AddParameter(ParameterDesc(3, "w", {4}), &id_),
                COMMSCHED_NOT_FOUND, "in module 3; there are 1");
  ExpectRefused(model_.AddModule("next", -1, 1, &id_),
                COMMSCHED_INVALID_ARGUMENT, "forward_flops is -1");
  // The name is still to be had.
  Parameter(module, "w", {uint64_t{1} << 20, uint64_t{1} << 20});
  ExpectRefused(model_.AddParameter(ParameterDesc(module, "v", {1}), &id_),
                COMMSCHED_OUT_OF_RANGE, "with parameter 'v'");
}

TEST_F(ModelTest, ScalarsAndParametersWithoutElementsAreParameters) {
  const uint32_t module = Module("block");
  const uint32_t scalar = Parameter(module, "scalar", {});
  const uint32_t empty = Parameter(module, "empty", {3, 0});
  EXPECT_EQ(model_.parameters()[scalar].count, 1u);
  EXPECT_EQ(model_.parameters()[empty].count, 0u);
  // No product of dimensions overflows beside a 0.
  Parameter(module, "huge", {uint64_t{1} << 40, uint64_t{1} << 40, 0});
  commsched_parameter_desc_t desc = ParameterDesc(module, "w", {});
  desc.num_dims = 2;
  desc.dims = nullptr;
  ExpectRefused(model_.AddParameter(desc, &id_), COMMSCHED_INVALID_ARGUMENT,
                "parameter 'w' has 2 dims, which are NULL");
}

TEST_F(ModelTest, FrozenIsAFlagAndADTypeOneOfThree) {
  const uint32_t module = Module("block");
  const std::vector<uint64_t> dims = {4};
  commsched_parameter_desc_t desc = ParameterDesc(module, "w", dims);
  desc.frozen = 2;
  ExpectRefused(model_.AddParameter(desc, &id_), COMMSCHED_INVALID_ARGUMENT,
                "frozen of parameter 'w' is 2; it must be 0 or 1");
  desc.frozen = 1;
  desc.dtype = COMMSCHED_BF16;
  ExpectRefused(model_.AddParameter(desc, &id_), COMMSCHED_INVALID_ARGUMENT,
                "dtype of parameter 'w' is 3, and has_dtype is 0");
  desc.has_dtype = 1;
  desc.dtype = COMMSCHED_F64;
  ExpectRefused(model_.AddParameter(desc, &id_), COMMSCHED_INVALID_ARGUMENT,
                "dtype of parameter 'w' is 1; it must be F32 (0)");
  desc.dtype = COMMSCHED_BF16;
  EXPECT_TRUE(model_.AddParameter(desc, &id_).ok());
  EXPECT_TRUE(model_.parameters()[0].frozen);
  EXPECT_EQ(model_.parameters()[0].dtype, COMMSCHED_BF16);
  commsched_module_op_desc_t op = commsched_module_op_desc_init();
  const uint32_t frozen = 0;
  op.name = "dw";
  op.backward = 1;
  op.gradients = &frozen;
  op.num_gradients = 1;
  ExpectRefused(model_.AddOp(module, op, &id_), COMMSCHED_INVALID_ARGUMENT,
                "adds to the gradient of 'w', which is frozen");
}

TEST_F(ModelTest, AParameterBelongsToTheFirstThatUsesIt) {
  const uint32_t first = Module("first");
  const uint32_t second = Module("second");
  const uint32_t late = Parameter(second, "late", {4});
  ExpectRefused(model_.UseParameter(first, late), COMMSCHED_INVALID_ARGUMENT,
                "which the later module 'second' owns");
  ExpectRefused(model_.UseParameter(second, late), COMMSCHED_ALREADY_EXISTS,
                "uses parameter 'late' already");
  ExpectRefused(model_.UseParameter(second, 9), COMMSCHED_NOT_FOUND,
                "parameter 9; there are 1");
  ExpectRefused(model_.UseParameter(9, late), COMMSCHED_NOT_FOUND,
                "module 9; there are 2");
}

TEST_F(ModelTest, AParameterIsReplicatedOverAGroupThatThereIs) {
  const uint32_t module = Module("block");
  const std::vector<uint64_t> dims = {4};
  commsched_parameter_desc_t desc = ParameterDesc(module, "w", dims);
  desc.replicated_over = 1;
  ExpectRefused(model_.AddParameter(desc, &id_), COMMSCHED_NOT_FOUND,
                "parameter 'w' is replicated over group 1; there are 0");
  ASSERT_TRUE(model_.AddGroup("tp", 2, &id_).ok());
  ASSERT_TRUE(model_.AddParameter(desc, &id_).ok());
  EXPECT_EQ(model_.parameters()[0].replicated_over, 1u);
}

TEST_F(ModelTest, OnceAnEngineIsPreparedItTakesNoMore) {
  EXPECT_TRUE(model_.CheckOpen().ok());
  model_.Close();
  ExpectRefused(model_.CheckOpen(), COMMSCHED_FAILED_PRECONDITION,
                "nothing can be added");
}

// Which sizes fit is known once the group is.
TEST_F(ModelTest, CollectivesOverTheEnginesGroupAreAddedForAnySize) {
  const uint32_t module = Module("block");
  commsched_activation_desc_t activation = commsched_activation_desc_init();
  activation.name = "a";
  activation.count = 7;
  ASSERT_TRUE(model_.AddActivation(activation, &id_).ok());
  uint32_t group = 0;
  ASSERT_TRUE(model_.AddGroup("sp", 2, &group).ok());
  commsched_module_collective_desc_t desc =
      commsched_module_collective_desc_init();
  desc.name = "swap";
  desc.kind = COMMSCHED_ALL_TO_ALL;
  desc.group = group;
  desc.input.mode = COMMSCHED_READ;
  desc.output.mode = COMMSCHED_WRITE;
  EXPECT_EQ(model_.AddCollective(module, desc).code(),
            COMMSCHED_INVALID_ARGUMENT);
  desc.group = 0;
  EXPECT_TRUE(model_.AddCollective(module, desc).ok());
  EXPECT_EQ(model_.AddCollective(module, desc).code(),
            COMMSCHED_ALREADY_EXISTS);
  desc.name = "beyond";
  desc.input.buffer = 4;
  EXPECT_EQ(model_.AddCollective(module, desc).code(), COMMSCHED_NOT_FOUND);
}

TEST_F(ModelTest, SegmentsDoNotOverlap) {
  for (const char* name : {"a", "b", "c", "d"}) Module(name);
  ASSERT_TRUE(model_.Recompute(0, 1).ok());
  ASSERT_TRUE(model_.Recompute(3, 3).ok());
  EXPECT_THAT(model_.Segments(), ElementsAre(1, 1, 0, 2));
  ExpectRefused(model_.Recompute(1, 2), COMMSCHED_ALREADY_EXISTS,
                "module 'b' is recomputed with others already");
  ExpectRefused(model_.Recompute(2, 1), COMMSCHED_INVALID_ARGUMENT,
                "which comes before it");
  EXPECT_THAT(model_.Segments(), ElementsAre(1, 1, 0, 2));
}

TEST_F(ModelTest, OpsAreNamedByTheirModuleAndPass) {
  const uint32_t module = Module("block");
  commsched_module_op_desc_t desc = commsched_module_op_desc_init();
  desc.name = "q";
  uint32_t op = 0;
  ASSERT_TRUE(model_.AddOp(module, desc, &op).ok());
  desc.name = "dq";
  desc.backward = 1;
  uint32_t backward = 0;
  ASSERT_TRUE(model_.AddOp(module, desc, &backward).ok());
  EXPECT_EQ(model_.TextOfOp(op), "op 0 'forward.block.q'");
  EXPECT_EQ(model_.TextOfOp(backward), "op 1 'backward.block.dq'");
  EXPECT_EQ(model_.TextOfOp(5), "op 5");
  // The same name a second time is refused by the graph that has them all.
  EXPECT_FALSE(model_.AddOp(module, desc, &id_).ok());
  EXPECT_EQ(model_.ops().size(), 2u);
}

}  // namespace
}  // namespace commsched::engine
