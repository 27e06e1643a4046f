#include <pointsman.h>

const pointsman_definition pointsman_policy = {
    .name = "least-loaded-warm",
    .version = "0.1.0",
    .description = "Takes the worker with the fewest active requests, of equals the one with most of the prompt cached.",
};

static double cache_weight = 0.5;

const pointsman_parameter pointsman_parameters[] = {
    {
        .name = "cache_weight",
        .description = "Active requests that a wholly cached prompt weighs as much as; below 1 it only breaks ties.",
        .number = &cache_weight,
        .optional = true,
        .min = POINTSMAN_BOUND(0),
        .max = POINTSMAN_BOUND(1),
    },
    {0},
};

enum { BLOCKS };
enum { ACTIVE_REQUESTS, OVERLAP_BLOCKS };

const pointsman_reads pointsman_score_reads = {
    .facts = POINTSMAN_NAMES("request.blocks"),
    .signals = POINTSMAN_NAMES("load.active-requests", "cache.overlap-blocks"),
};

const char *pointsman_score(const pointsman_request *request, double *costs) {
    const double *requests = pointsman_signal(request, ACTIVE_REQUESTS);
    const double *cached = pointsman_signal(request, OVERLAP_BLOCKS);
    double blocks = request->facts[BLOCKS] > 1 ? request->facts[BLOCKS] : 1;
    for (uint32_t row = 0; row < request->rows; row++) costs[row] = requests[row] - cache_weight * cached[row] / blocks;
    return NULL;
}
