#include <pointsman.h>

const pointsman_definition pointsman_policy = {
    .name = "new-policy",
    .version = "0.1.0",
    .description = "What the policy does, in one sentence.",
};

//[filter
static uint32_t max_requests = 64;

//]
const pointsman_parameter pointsman_parameters[] = {
//[filter
    {
        .name = "max_requests",
        .description = "The active requests at which a worker gets no further one.",
        .integer = &max_requests,
        .optional = true,
        .min = POINTSMAN_BOUND(1),
    },
//]
    {0},
};
//[filter

const pointsman_reads pointsman_filter_reads = {.signals = POINTSMAN_NAMES("load.active-requests")};

const char *pointsman_filter(const pointsman_request *request, bool *keep) {
    const double *requests = pointsman_signal(request, 0);
    for (uint32_t row = 0; row < request->rows; row++) keep[row] = requests[row] < max_requests;
    return NULL;
}
//]
//[score

const pointsman_reads pointsman_score_reads = {.signals = POINTSMAN_NAMES("load.active-requests")};

const char *pointsman_score(const pointsman_request *request, double *costs) {
    const double *requests = pointsman_signal(request, 0);
    for (uint32_t row = 0; row < request->rows; row++) costs[row] = requests[row];
    return NULL;
}
//]
//[pick

enum { COST, OVERLAP_BLOCKS };

const pointsman_reads pointsman_pick_reads = {.signals = POINTSMAN_NAMES("cost", "cache.overlap-blocks")};

/* The lowest cost; of equals the worker with most of the prompt cached, of those the first. */
const char *pointsman_pick(const pointsman_request *request, uint32_t *best) {
    const double *cost = pointsman_signal(request, COST);
    const double *cached = pointsman_signal(request, OVERLAP_BLOCKS);
    *best = 0;
    for (uint32_t row = 1; row < request->rows; row++) {
        bool equal = cost[row] == cost[*best];
        if (cost[row] < cost[*best] || (equal && cached[row] > cached[*best])) *best = row;
    }
    return NULL;
}
//]
