/* Routing policies for Pointsman, in C.
 *
 * A policy defines `pointsman_policy`, `pointsman_parameters`, and for each stage that pointsman.yaml names what it reads
 * and a function. Its state is in static variables: each guest has its own. A function answers NULL, or one sentence for
 * the operator's log. */
#ifndef POINTSMAN_H
#define POINTSMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the policy is. */
typedef struct {
    const char *name;
    const char *version;     /* by semantic versioning */
    const char *description; /* one sentence */
    bool exclusive_affinity; /* narrow the candidates to the affinity target while that is eligible */
    uint32_t tick_ms;        /* how often pointsman_on_tick is called, at least 10; 0 for never */
} pointsman_definition;

extern const pointsman_definition pointsman_policy;

/* One parameter. It is read into the one variable that is named here, which holds the default where it is optional. */
typedef struct {
    const char *name;
    const char *description;
    bool optional;
    double *number;
    uint32_t *integer; /* written without fraction or exponent */
    bool *boolean;
    const char **text;
    uint32_t *choice; /* the place of the text among `names` */
    const char *const *names;
    const double *min, *above, *max, *below; /* POINTSMAN_BOUND(0.5), of a number or an integer */
} pointsman_parameter;

#define POINTSMAN_BOUND(number) ((const double[]){number})
#define POINTSMAN_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Ends with {0}. */
extern const pointsman_parameter pointsman_parameters[];

/* What a stage reads, by the names of docs/contract.md: lists made by POINTSMAN_NAMES, or NULL. */
typedef struct {
    const char *const *facts;
    const char *const *texts;
    const char *const *signals;
    bool workers;
} pointsman_reads;

/* A text that came in: `length` bytes of UTF-8 without a zero at their end. */
typedef struct {
    uint8_t present;
    const char *data;
    size_t length;
} pointsman_text;

/* What a stage was given; valid during the call. Facts, texts and signals are counted from 0 in the order in which the
 * stage names them; a missing number is NaN. */
typedef struct {
    const double *facts;
    const double *signals;
    const pointsman_text *texts;
    const uint32_t *workers; /* one a row, if the stage reads them */
    uint32_t rows;           /* candidates, at least 1 */
    uint32_t ticket;         /* of a classifier: the request's number */
} pointsman_request;

/* A signal of each row: a pointer into the one list. */
static inline const double *pointsman_signal(const pointsman_request *request, size_t place) {
    return request->signals + place * request->rows;
}

typedef enum { POINTSMAN_AGGREGATED, POINTSMAN_PREFILL, POINTSMAN_DECODE, POINTSMAN_ENCODE } pointsman_role;

/* What a guest knows from its start. */
typedef struct {
    const char *model; /* `model_length` bytes, as all texts here */
    size_t model_length;
    const char *routing_group;
    size_t routing_group_length;
    uint8_t role;
    uint32_t block_size; /* tokens per KV block */
    uint32_t seed;       /* of this guest's randomness */
} pointsman_partition;

/* The router's settings, which a policy may take as defaults. */
typedef struct {
    double overlap_score_credit;
    double overlap_score_credit_decay;
    double prefill_load_scale;
    double decode_active_request_weight;
    double host_cache_hit_weight;
    double disk_cache_hit_weight;
    double shared_cache_multiplier;
    double router_temperature;
    uint8_t conditional_disaggregation;
} pointsman_router;

/* Called once, after the parameters were read; need not be defined. */
const char *pointsman_configure(const pointsman_partition *partition, const pointsman_router *router);

/* `keep` has a place for each row: true where the worker may serve the request; all are true at first. */
extern const pointsman_reads pointsman_filter_reads;
const char *pointsman_filter(const pointsman_request *request, bool *keep);

/* `costs` has a place for each row: lower is better; all are 0 at first. */
extern const pointsman_reads pointsman_score_reads;
const char *pointsman_score(const pointsman_request *request, double *costs);

/* `row` is the chosen one. */
extern const pointsman_reads pointsman_pick_reads;
const char *pointsman_pick(const pointsman_request *request, uint32_t *row);

typedef enum {
    POINTSMAN_INVALID_REQUEST,
    POINTSMAN_UNAUTHENTICATED,
    POINTSMAN_PERMISSION_DENIED,
    POINTSMAN_NOT_FOUND,
    POINTSMAN_CONFLICT,
    POINTSMAN_PAYLOAD_TOO_LARGE,
    POINTSMAN_UNSUPPORTED_MEDIA,
    POINTSMAN_RATE_LIMITED,
    POINTSMAN_CAPACITY_EXHAUSTED,
    POINTSMAN_UNAVAILABLE,
    POINTSMAN_BACKEND_PROTOCOL,
    POINTSMAN_DEADLINE_EXCEEDED,
    POINTSMAN_NOT_IMPLEMENTED,
    POINTSMAN_INTERNAL,
    POINTSMAN_CANCELLED
} pointsman_error_class;

/* What becomes of a request; {0} defers it. What is left out of an admission leaves the host's own value. */
typedef struct {
    enum { POINTSMAN_DEFER, POINTSMAN_ADMIT, POINTSMAN_REJECT } kind;
    const char *policy_class;
    const double *due_ms; /* on the clock of request.now-ms */
    uint32_t scheduling_cost_tokens;
    enum { POINTSMAN_KEEP_TARGET, POINTSMAN_CLEAR_TARGET, POINTSMAN_SET_TARGET } target;
    uint32_t target_worker;
    pointsman_error_class error_class;
    const char *public_message; /* for the client */
    const char *diagnostic;     /* for the operator's log */
} pointsman_verdict;

typedef enum {
    POINTSMAN_SENT,
    POINTSMAN_RESPONDING,
    POINTSMAN_COMPLETED,
    POINTSMAN_ABORTED,
    POINTSMAN_WORKERS
} pointsman_event_kind;

/* One registered data-parallel rank. */
typedef struct {
    uint32_t number;
    uint32_t rank;
    uint8_t has_total_kv_blocks;
    uint32_t total_kv_blocks;
} pointsman_worker;

/* What happened to a classified request, or to the workers. Completed and aborted are a ticket's last. */
typedef struct {
    pointsman_event_kind kind;
    uint32_t ticket;
    bool has_worker;
    uint32_t worker;
    bool has_context_tokens;
    uint32_t context_tokens;
    pointsman_text error;
    const pointsman_worker *workers;
    size_t workers_length;
} pointsman_event;

/* The prompt and generated tokens of a live request. */
typedef struct {
    uint32_t ticket;
    uint32_t context_tokens;
} pointsman_progress;

extern const pointsman_reads pointsman_classify_reads;
const char *pointsman_classify(const pointsman_request *request, pointsman_verdict *verdict);
/* These two need not be defined. */
const char *pointsman_on_event(const pointsman_event *event, double now_ms);
const char *pointsman_on_tick(double now_ms, const pointsman_progress *progress, size_t length);

/* Ends the deferral of a request, within pointsman_on_event or pointsman_on_tick. */
void pointsman_resolve(uint32_t ticket, pointsman_verdict verdict);

typedef enum {
    POINTSMAN_LOG_ERROR,
    POINTSMAN_LOG_WARN,
    POINTSMAN_LOG_INFO,
    POINTSMAN_LOG_DEBUG,
    POINTSMAN_LOG_TRACE
} pointsman_level;

/* Writes to the policy's bounded log; so does printf, as info. */
void pointsman_log(pointsman_level level, const char *message);

/* A sentence made as printf makes it, valid until the next call. */
const char *pointsman_sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
