/* A policy as the exports of its component: the canonical ABI of wit/policy.wit, whose records are these structs.
 * `pointsman policy build` defines POINTSMAN_HAS_* for the stages that pointsman.yaml names. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "pointsman.h"

#define EXPORT(interface, function) __attribute__((export_name("pointsman:policy/" interface "@0.1.0#" function)))

/* Blocks of what came in and of what goes out. They are free once a call has ended, which the next one tells. */
typedef struct block {
    struct block *next;
    size_t size, used;
    _Alignas(8) char bytes[];
} block;

static block *blocks;
static bool call_has_ended;

static void reset(void) {
    while (blocks && blocks->next) {
        block *last = blocks->next;
        blocks->next = last->next;
        free(last);
    }
    if (blocks) blocks->used = 0;
    call_has_ended = false;
}

void *pointsman_room(size_t size) {
    if (call_has_ended) reset();
    size = (size + 7) & ~(size_t)7;
    if (!blocks || blocks->size - blocks->used < size) {
        /* The newest block is the largest, and the one that is kept. */
        size_t capacity = blocks ? blocks->size * 2 : 16 << 10;
        if (capacity < size) capacity = size;
        block *more = malloc(sizeof(block) + capacity);
        if (!more) __builtin_trap();
        *more = (block){.next = blocks, .size = capacity};
        blocks = more;
    }
    void *room = blocks->bytes + blocks->used;
    blocks->used += size;
    return room;
}

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
    (void)align;
    void *room = pointsman_room(size);
    if (old) memcpy(room, old, old_size < size ? old_size : size);
    return room;
}

typedef struct {
    const char *data;
    size_t length;
} string;

static string text_of(const char *text) { return (string){text ? text : "", text ? strlen(text) : 0}; }

/* Records of the contract. */
typedef struct {
    string name, version, description, schema;
} manifest;
typedef struct {
    const string *names;
    size_t length;
} name_list;
typedef struct {
    uint8_t some;
    name_list facts, texts, signals;
    uint8_t workers;
} optional_reads;
typedef struct {
    optional_reads filter, score, pick;
    uint8_t exclusive_affinity;
    optional_reads classify;
    uint8_t ticks;
    uint32_t tick_ms;
} inputs;
typedef struct {
    uint8_t failed;
    union {
        inputs inputs;
        string error;
    };
} inputs_result;
typedef struct {
    pointsman_partition partition;
    pointsman_router router;
    string parameters;
} configure_arguments;
typedef struct {
    uint8_t failed;
    union {
        struct {
            const void *data;
            size_t length;
        };
        uint32_t row;
        string error;
    };
} result;

_Static_assert(sizeof(configure_arguments) == 112 && sizeof(inputs_result) == 144 && sizeof(result) == 12, "wasm32");

EXPORT("policy", "describe") const manifest *pointsman_describe(void) {
    static manifest said;
    const pointsman_definition *policy = &pointsman_policy;
    said = (manifest){text_of(policy->name), text_of(policy->version), text_of(policy->description), {0}};
    said.schema = text_of(pointsman_parameters_schema(pointsman_parameters));
    call_has_ended = true;
    return &said;
}

static name_list list_of(const char *const *names) {
    size_t length = 0;
    while (names && names[length]) length++;
    string *list = pointsman_room(length * sizeof(string));
    for (size_t place = 0; place < length; place++) list[place] = text_of(names[place]);
    return (name_list){list, length};
}

__attribute__((unused)) static optional_reads reads_of(const pointsman_reads *reads) {
    return (optional_reads){1, list_of(reads->facts), list_of(reads->texts), list_of(reads->signals), reads->workers};
}

__attribute__((weak)) const char *pointsman_configure(const pointsman_partition *p, const pointsman_router *r) {
    (void)p, (void)r;
    return NULL;
}

EXPORT("policy", "configure") const inputs_result *pointsman_start(const configure_arguments *arguments) {
    static inputs_result answer;
    string json = arguments->parameters;
    const char *error = pointsman_parameters_read(pointsman_parameters, json.data, json.length);
    if (!error) error = pointsman_configure(&arguments->partition, &arguments->router);
    if (error) {
        answer = (inputs_result){.failed = 1, .error = text_of(error)};
        return &answer;
    }
    answer = (inputs_result){.inputs = {.exclusive_affinity = pointsman_policy.exclusive_affinity}};
    inputs *reads = &answer.inputs;
    reads->ticks = pointsman_policy.tick_ms > 0;
    reads->tick_ms = pointsman_policy.tick_ms;
#ifdef POINTSMAN_HAS_FILTER
    reads->filter = reads_of(&pointsman_filter_reads);
#endif
#ifdef POINTSMAN_HAS_SCORE
    reads->score = reads_of(&pointsman_score_reads);
#endif
#ifdef POINTSMAN_HAS_PICK
    reads->pick = reads_of(&pointsman_pick_reads);
#endif
#ifdef POINTSMAN_HAS_CLASSIFY
    reads->classify = reads_of(&pointsman_classify_reads);
#endif
    call_has_ended = true;
    return &answer;
}

/* What every stage is given. */
#define ARGUMENTS                                                                                                   \
    uint32_t rows, const double *numbers, size_t length, uint32_t has_workers, const uint32_t *workers,             \
        size_t workers_length, uint32_t has_texts, const pointsman_text *texts, size_t texts_length
#define REQUEST(reads)                                                                                              \
    (void)length, (void)has_workers, (void)workers_length, (void)has_texts, (void)texts_length;                     \
    size_t facts = 0;                                                                                               \
    while ((reads).facts && (reads).facts[facts]) facts++;                                                          \
    const pointsman_request request = {numbers, numbers + facts, texts, workers, rows, 0}

__attribute__((unused)) static const result *answered(const char *error, result ok) {
    static result answer;
    answer = error ? (result){.failed = 1, .error = text_of(error)} : ok;
    call_has_ended = true;
    return &answer;
}

#ifdef POINTSMAN_HAS_FILTER
EXPORT("worker-filter", "keep") const result *pointsman_run_filter(ARGUMENTS) {
    REQUEST(pointsman_filter_reads);
    bool *keep = pointsman_room(rows);
    memset(keep, true, rows);
    const char *error = pointsman_filter(&request, keep);
    return answered(error, (result){.data = keep, .length = rows});
}
#endif

#ifdef POINTSMAN_HAS_SCORE
EXPORT("worker-scorer", "score") const result *pointsman_run_score(ARGUMENTS) {
    REQUEST(pointsman_score_reads);
    double *costs = pointsman_room(rows * sizeof(double));
    memset(costs, 0, rows * sizeof(double));
    const char *error = pointsman_score(&request, costs);
    return answered(error, (result){.data = costs, .length = rows});
}
#endif

#ifdef POINTSMAN_HAS_PICK
EXPORT("worker-picker", "pick") const result *pointsman_run_pick(ARGUMENTS) {
    REQUEST(pointsman_pick_reads);
    uint32_t row = 0;
    const char *error = pointsman_pick(&request, &row);
    return answered(error, (result){.row = row});
}
#endif

#ifdef POINTSMAN_HAS_CLASSIFY
typedef struct {
    uint8_t some;
    string text;
} optional_text;
typedef struct {
    uint8_t reject;
    union {
        struct {
            optional_text policy_class;
            struct {
                uint8_t some;
                double ms;
            } due;
            struct {
                uint8_t some;
                uint32_t tokens;
            } cost;
            struct {
                uint8_t change;
                uint32_t worker;
            } target;
        } admission;
        struct {
            uint8_t error_class;
            optional_text public_message;
            string diagnostic;
        } rejection;
    };
} verdict;
typedef struct {
    uint32_t ticket;
    verdict verdict;
} resolution;
typedef struct {
    uint8_t failed;
    union {
        struct {
            uint8_t decided;
            verdict verdict;
        };
        string error;
    };
} verdict_result;

_Static_assert(sizeof(verdict) == 56 && sizeof(resolution) == 64 && sizeof(verdict_result) == 72, "wasm32");

static optional_text optional(const char *text) { return (optional_text){text != NULL, text_of(text)}; }

static verdict verdict_of(const pointsman_verdict *given) {
    verdict made = {0};
    if (given->kind == POINTSMAN_REJECT) {
        made.reject = 1;
        made.rejection.error_class = given->error_class;
        made.rejection.public_message = optional(given->public_message);
        made.rejection.diagnostic = text_of(given->diagnostic);
        return made;
    }
    made.admission.policy_class = optional(given->policy_class);
    made.admission.due.some = given->due_ms != NULL;
    made.admission.due.ms = given->due_ms ? *given->due_ms : 0;
    made.admission.cost.some = given->scheduling_cost_tokens > 0;
    made.admission.cost.tokens = given->scheduling_cost_tokens;
    made.admission.target.change = given->target;
    made.admission.target.worker = given->target_worker;
    return made;
}

EXPORT("request-classifier", "classify")
const verdict_result *pointsman_run_classify(uint32_t ticket, const double *numbers, size_t length, uint32_t has_texts,
                                             const pointsman_text *texts, size_t texts_length) {
    static verdict_result answer;
    (void)length, (void)has_texts, (void)texts_length;
    const pointsman_request request = {.facts = numbers, .texts = texts, .ticket = ticket};
    pointsman_verdict given = {0};
    const char *error = pointsman_classify(&request, &given);
    if (error) {
        answer = (verdict_result){.failed = 1, .error = text_of(error)};
    } else {
        answer = (verdict_result){.decided = given.kind != POINTSMAN_DEFER, .verdict = verdict_of(&given)};
    }
    call_has_ended = true;
    return &answer;
}

static resolution *resolved;
static size_t resolved_length, resolved_capacity;

void pointsman_resolve(uint32_t ticket, pointsman_verdict given) {
    if (resolved_length == resolved_capacity) {
        resolved_capacity = resolved_capacity ? resolved_capacity * 2 : 16;
        resolved = realloc(resolved, resolved_capacity * sizeof(resolution));
        if (!resolved) __builtin_trap();
    }
    resolved[resolved_length++] = (resolution){ticket, verdict_of(&given)};
}

static const result *resolutions(const char *error) {
    const result *answer = answered(error, (result){.data = resolved, .length = resolved_length});
    resolved_length = 0;
    return answer;
}

__attribute__((weak)) const char *pointsman_on_event(const pointsman_event *event, double now_ms) {
    (void)event, (void)now_ms;
    return NULL;
}

__attribute__((weak)) const char *pointsman_on_tick(double now_ms, const pointsman_progress *progress, size_t length) {
    (void)now_ms, (void)progress, (void)length;
    return NULL;
}

/* The six words are those of the largest case, `aborted`; the others have the first of them. */
EXPORT("request-classifier", "on-event")
const result *pointsman_run_event(uint32_t kind, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth,
                                  uint32_t fifth, uint32_t sixth, double now_ms) {
    pointsman_event event = {.kind = kind, .ticket = first};
    switch (event.kind) {
    case POINTSMAN_SENT:
    case POINTSMAN_RESPONDING:
        event.has_worker = true;
        event.worker = second;
        break;
    case POINTSMAN_COMPLETED:
        event.has_worker = true;
        event.worker = second;
        event.has_context_tokens = third;
        event.context_tokens = fourth;
        break;
    case POINTSMAN_ABORTED:
        event.has_worker = second;
        event.worker = third;
        event.error = (pointsman_text){fourth, (const char *)fifth, sixth};
        break;
    case POINTSMAN_WORKERS:
        event.ticket = 0;
        event.workers = (const pointsman_worker *)first;
        event.workers_length = second;
        break;
    }
    return resolutions(pointsman_on_event(&event, now_ms));
}

EXPORT("request-classifier", "on-tick")
const result *pointsman_run_tick(double now_ms, const pointsman_progress *progress, size_t length) {
    return resolutions(pointsman_on_tick(now_ms, progress, length));
}
#endif

__attribute__((import_module("pointsman:policy/log@0.1.0"), import_name("log"))) void pointsman_host_log(
    uint32_t level, const char *message, size_t length);

void pointsman_log(pointsman_level level, const char *message) { pointsman_host_log(level, message, strlen(message)); }

const char *pointsman_sentence(const char *format, ...) {
    static char sentence[512];
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    return sentence;
}
