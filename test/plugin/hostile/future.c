/* A plugin for an ABI that is still to come. */
#include "commsched/plugin.h"

static const commsched_plugin_head_t kTable = {
    .struct_size = 4096, .abi = 7, .name = "future", .version = "9"};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kTable}};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = 7,
    .num_plugins = 1,
    .plugins = kPlugins,
};
