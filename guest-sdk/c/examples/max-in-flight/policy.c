#include <pointsman.h>
#include <stdlib.h>
#include <string.h>

const pointsman_definition pointsman_policy = {
    .name = "max-in-flight",
    .version = "0.1.0",
    .description = "Admits so many requests at a time, in the order of arrival.",
};

static uint32_t max_requests;

const pointsman_parameter pointsman_parameters[] = {
    {
        .name = "max_requests",
        .description = "The most requests in flight at a time.",
        .integer = &max_requests,
        .min = POINTSMAN_BOUND(1),
    },
    {0},
};

/* Tickets in the order in which they came. */
typedef struct {
    uint32_t *tickets;
    size_t length, capacity;
} queue;

static queue in_flight, waiting;

static const char *push(queue *queue, uint32_t ticket) {
    if (queue->length == queue->capacity) {
        size_t capacity = queue->capacity ? queue->capacity * 2 : 16;
        uint32_t *tickets = realloc(queue->tickets, capacity * sizeof *tickets);
        if (!tickets) return "there is no memory for more tickets";
        queue->tickets = tickets;
        queue->capacity = capacity;
    }
    queue->tickets[queue->length++] = ticket;
    return NULL;
}

static bool take(queue *queue, uint32_t ticket) {
    for (size_t place = 0; place < queue->length; place++) {
        if (queue->tickets[place] != ticket) continue;
        size_t after = queue->length - place - 1;
        memmove(queue->tickets + place, queue->tickets + place + 1, after * sizeof *queue->tickets);
        queue->length--;
        return true;
    }
    return false;
}

const pointsman_reads pointsman_classify_reads = {0};

const char *pointsman_classify(const pointsman_request *request, pointsman_verdict *verdict) {
    if (in_flight.length >= max_requests) return push(&waiting, request->ticket);
    verdict->kind = POINTSMAN_ADMIT;
    return push(&in_flight, request->ticket);
}

const char *pointsman_on_event(const pointsman_event *event, double now_ms) {
    (void)now_ms;
    if (event->kind != POINTSMAN_COMPLETED && event->kind != POINTSMAN_ABORTED) return NULL;
    take(&waiting, event->ticket);
    if (!take(&in_flight, event->ticket) || waiting.length == 0) return NULL;
    uint32_t next = waiting.tickets[0];
    take(&waiting, next);
    pointsman_resolve(next, (pointsman_verdict){.kind = POINTSMAN_ADMIT});
    return push(&in_flight, next);
}
