#include <pointsman.h>
#include <stdio.h>
#include <stdlib.h>

const pointsman_definition pointsman_policy = {"faulty", "0.1.0", "Errs as it is told.", false, 0};

enum { EXCEPTION, ERROR, LOOP, MEMORY, PRINT };
static uint32_t fault;

const pointsman_parameter pointsman_parameters[] = {
    {
        .name = "fault",
        .choice = &fault,
        .names = POINTSMAN_NAMES("exception", "error", "loop", "memory", "print"),
    },
    {0},
};

const pointsman_reads pointsman_score_reads = {.signals = POINTSMAN_NAMES("load.active-requests")};

const char *pointsman_score(const pointsman_request *request, double *costs) {
    switch (fault) {
    case EXCEPTION:
        __builtin_trap();
    case ERROR:
        return pointsman_sentence("there is no %s", "way");
    case LOOP:
        for (volatile uint32_t row = 0;; row = 0) costs[row]++;
    case MEMORY:
        for (;;) {
            char *more = malloc(1 << 20);
            if (!more) return "there is no memory";
            *(volatile char *)more = 1;
        }
    case PRINT:
        printf("seen %d\n", (int)request->rows);
    }
    return NULL;
}
