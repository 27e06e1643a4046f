/* Parameters: read from JSON, held against their rules, and described as a JSON Schema. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Text that grows. What it holds lives as long as the guest: parameters are read once. */
typedef struct {
    char *bytes;
    size_t length, capacity;
} text;

static void append(text *text, const char *bytes, size_t length) {
    if (text->length + length + 1 > text->capacity) {
        text->capacity = (text->length + length + 1) * 2;
        text->bytes = realloc(text->bytes, text->capacity);
        if (!text->bytes) __builtin_trap();
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = 0;
}

static void say(text *text, const char *words) { append(text, words, strlen(words)); }

static const char *sentence(const char *first, ...) {
    text said = {0};
    va_list more;
    va_start(more, first);
    for (const char *words = first; words; words = va_arg(more, const char *)) say(&said, words);
    va_end(more);
    return said.bytes;
}

/* JSON that is being read; `problem` is the first that was met. */
typedef struct {
    const char *start, *at, *end;
    const char *problem;
} reader;

static int peek(reader *reader) {
    while (reader->at < reader->end && strchr(" \t\n\r", *reader->at) && *reader->at) reader->at++;
    return reader->at < reader->end ? (unsigned char)*reader->at : -1;
}

static bool take(reader *reader, char byte) {
    bool found = peek(reader) == byte;
    reader->at += found;
    return found;
}

static bool word(reader *reader, const char *word) {
    size_t length = strlen(word);
    peek(reader);
    bool found = (size_t)(reader->end - reader->at) >= length && memcmp(reader->at, word, length) == 0;
    if (found) reader->at += length;
    return found;
}

static bool not_json(reader *reader, const char *expected) {
    char place[24];
    snprintf(place, sizeof place, "%zu", (size_t)(reader->at - reader->start));
    reader->problem = sentence("parameters are not JSON: expected ", expected, " at byte ", place, NULL);
    return false;
}

static const char *kind(reader *reader) {
    int next = peek(reader);
    if (next == '"') return "a string";
    if (next == '{') return "an object";
    if (next == '[') return "a list";
    if (next == '-' || (next >= '0' && next <= '9')) return "a number";
    if (word(reader, "true") || word(reader, "false")) return "a boolean";
    return word(reader, "null") ? "null" : NULL;
}

static bool expected(reader *reader, const char *name, const char *expected) {
    const char *found = kind(reader);
    if (!found) return not_json(reader, "a value");
    reader->problem = sentence(name, ": expected ", expected, ", found ", found, NULL);
    return false;
}

static bool digits(reader *reader) {
    const char *from = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') reader->at++;
    return reader->at > from || not_json(reader, "a digit");
}

static bool step(reader *reader, const char *bytes) {
    bool found = reader->at < reader->end && *reader->at && strchr(bytes, *reader->at);
    reader->at += found;
    return found;
}

/* A number as it is written; NULL where there is none. */
static const char *number(reader *reader, const char *name) {
    int next = peek(reader);
    if (next != '-' && (next < '0' || next > '9')) {
        expected(reader, name, "a number");
        return NULL;
    }
    text written = {0};
    const char *from = reader->at;
    step(reader, "-");
    if (!step(reader, "0") && !digits(reader)) return NULL;
    if (step(reader, ".") && !digits(reader)) return NULL;
    if (step(reader, "eE")) {
        step(reader, "+-");
        if (!digits(reader)) return NULL;
    }
    append(&written, from, reader->at - from);
    return written.bytes;
}

static int unit(reader *reader) {
    int unit = 0;
    for (int digit = 0; digit < 4; digit++, reader->at++) {
        char byte = reader->at < reader->end ? *reader->at : 0;
        int value = byte >= '0' && byte <= '9'   ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (value < 0) return not_json(reader, "four hexadecimal digits"), -1;
        unit = unit * 16 + value;
    }
    return unit;
}

static bool utf8(text *text, uint32_t code) {
    char bytes[4];
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t place = length; place-- > 1; code >>= 6) bytes[place] = 0x80 | (code & 0x3f);
    bytes[0] = length == 1 ? code : (0xf00 >> length & 0xff) | code;
    append(text, bytes, length);
    return true;
}

static bool escaped(reader *reader, text *text) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char byte = reader->at < reader->end ? *reader->at : 0;
    const char *plain = byte ? strchr(from, byte) : NULL;
    if (plain) {
        reader->at++;
        append(text, to + (plain - from), 1);
        return true;
    }
    if (!step(reader, "u")) return not_json(reader, "an escape that JSON has");
    int first = unit(reader);
    if (first < 0) return false;
    if (first < 0xd800 || first > 0xdfff) return utf8(text, first);
    int second = first < 0xdc00 && step(reader, "\\") && step(reader, "u") ? unit(reader) : -1;
    if (second < 0xdc00 || second > 0xdfff) return not_json(reader, "the other half of a surrogate pair");
    return utf8(text, 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
}

/* A text; NULL where there is none. */
static const char *string(reader *reader, const char *name) {
    if (!take(reader, '"')) {
        expected(reader, name, "a string");
        return NULL;
    }
    text read = {0};
    append(&read, "", 0);
    for (;;) {
        unsigned char byte = reader->at < reader->end ? *reader->at : 0;
        if (byte == '"') break;
        if (byte < 0x20) {
            not_json(reader, "`\"`, or an escape in place of a control character,");
            return NULL;
        }
        reader->at++;
        if (byte != '\\') append(&read, (const char *)&byte, 1);
        else if (!escaped(reader, &read)) return NULL;
    }
    reader->at++;
    return read.bytes;
}

/* "`a`, `b` or `c`"; `next` answers the name at a place. */
static const char *one_of(const char *(*next)(const void *, size_t), const void *names) {
    text said = {0};
    for (size_t place = 0; next(names, place); place++) {
        const char *before = place == 0 ? "`" : next(names, place + 1) ? ", `" : " or `";
        say(&said, before);
        say(&said, next(names, place));
        say(&said, "`");
    }
    return said.bytes;
}

static const char *parameter_name(const void *parameters, size_t place) {
    return ((const pointsman_parameter *)parameters)[place].name;
}

static const char *listed_name(const void *names, size_t place) { return ((const char *const *)names)[place]; }

/* The shortest decimal that is this number. */
static const char *shown(double number) {
    static char bounds[4][32];
    static size_t place;
    char *decimal = bounds[place++ % 4];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(decimal, 32, "%.*g", precision, number);
        if (strtod(decimal, NULL) == number) break;
    }
    return decimal;
}

static bool within(reader *reader, const pointsman_parameter *rule, double value) {
    bool outside = (rule->min && value < *rule->min) || (rule->above && value <= *rule->above) ||
                   (rule->max && value > *rule->max) || (rule->below && value >= *rule->below);
    if (!outside) return true;
    if (rule->min && rule->max) {
        reader->problem =
            sentence(rule->name, " must be between ", shown(*rule->min), " and ", shown(*rule->max), NULL);
        return false;
    }
    const struct {
        const char *words;
        const double *bound;
    } bounds[] = {{"at least ", rule->min}, {"above ", rule->above}, {"at most ", rule->max}, {"below ", rule->below}};
    text said = {0};
    for (size_t place = 0; place < 4; place++) {
        if (!bounds[place].bound) continue;
        if (said.length) say(&said, " and ");
        say(&said, bounds[place].words);
        say(&said, shown(*bounds[place].bound));
    }
    reader->problem = sentence(rule->name, " must be ", said.bytes, NULL);
    return false;
}

static bool read_number(reader *reader, const pointsman_parameter *rule) {
    const char *written = number(reader, rule->name);
    if (!written) return false;
    double value = strtod(written, NULL);
    if (isinf(value)) {
        reader->problem = sentence(rule->name, ": the number ", written, " is too large", NULL);
        return false;
    }
    *rule->number = value;
    return within(reader, rule, value);
}

static bool read_integer(reader *reader, const pointsman_parameter *rule) {
    const char *written = number(reader, rule->name);
    if (!written) return false;
    double value = strtod(written, NULL);
    if (written[strspn(written, "-0123456789")] || value < 0 || value > UINT32_MAX) {
        reader->problem =
            sentence(rule->name, ": expected a whole number from 0 to 4294967295, found ", written, NULL);
        return false;
    }
    *rule->integer = (uint32_t)value;
    return within(reader, rule, value);
}

static bool read_boolean(reader *reader, const pointsman_parameter *rule) {
    bool yes = word(reader, "true");
    if (!yes && !word(reader, "false")) return expected(reader, rule->name, "true or false");
    *rule->boolean = yes;
    return true;
}

static bool read_choice(reader *reader, const pointsman_parameter *rule) {
    const char *found = string(reader, rule->name);
    if (!found) return false;
    for (uint32_t place = 0; rule->names[place]; place++) {
        if (strcmp(rule->names[place], found) == 0) {
            *rule->choice = place;
            return true;
        }
    }
    const char *names = one_of(listed_name, rule->names);
    reader->problem = sentence(rule->name, ": expected ", names, ", found `", found, "`", NULL);
    return false;
}

static bool read_value(reader *reader, const pointsman_parameter *rule) {
    if (rule->number) return read_number(reader, rule);
    if (rule->integer) return read_integer(reader, rule);
    if (rule->boolean) return read_boolean(reader, rule);
    if (rule->choice) return read_choice(reader, rule);
    const char *read = string(reader, rule->name);
    if (read) *rule->text = read;
    return read != NULL;
}

static bool entry(reader *reader, const pointsman_parameter *parameters, bool *seen) {
    if (peek(reader) != '"') return not_json(reader, "a key");
    const char *key = string(reader, "");
    if (!key) return false;
    if (!take(reader, ':')) return not_json(reader, "`:`");
    size_t place = 0;
    while (parameters[place].name && strcmp(parameters[place].name, key) != 0) place++;
    if (!parameters[place].name) {
        reader->problem = parameters->name ? sentence("unknown parameter `", key, "`; use ",
                                                      one_of(parameter_name, parameters), NULL)
                                           : sentence("unknown parameter `", key, "`; this policy takes none", NULL);
        return false;
    }
    if (seen[place]) {
        reader->problem = sentence("parameter `", key, "` comes twice; keep one of the two", NULL);
        return false;
    }
    seen[place] = true;
    return read_value(reader, &parameters[place]);
}

static bool object(reader *reader, const pointsman_parameter *parameters, bool *seen) {
    if (!take(reader, '{')) {
        if (!kind(reader)) return not_json(reader, "a value");
        reader->problem = "parameters must be a JSON object";
        return false;
    }
    if (!take(reader, '}')) {
        do {
            if (!entry(reader, parameters, seen)) return false;
        } while (take(reader, ','));
        if (!take(reader, '}')) return not_json(reader, "`,` or `}`");
    }
    return peek(reader) < 0 || not_json(reader, "the end");
}

const char *pointsman_parameters_read(const pointsman_parameter *parameters, const char *json, size_t length) {
    reader reader = {.start = json, .at = json, .end = json + length};
    size_t count = 0;
    while (parameters[count].name) count++;
    bool *seen = calloc(count + 1, sizeof(bool));
    if (!seen) __builtin_trap();
    if (object(&reader, parameters, seen)) {
        for (size_t place = 0; place < count; place++) {
            if (seen[place] || parameters[place].optional) continue;
            reader.problem = sentence("missing parameter `", parameters[place].name, "`", NULL);
            break;
        }
    }
    free(seen);
    return reader.problem;
}

static void quoted(text *json, const char *words) {
    say(json, "\"");
    for (; words && *words; words++) {
        if (*words == '"' || *words == '\\') say(json, "\\");
        append(json, (unsigned char)*words < 0x20 ? " " : words, 1);
    }
    say(json, "\"");
}

static void keyword(text *json, const char *key, const char *value) {
    if (!value) return;
    if (json->bytes[json->length - 1] != '{') say(json, ",");
    quoted(json, key);
    say(json, ":");
    say(json, value);
}

static const char *as_text(const char *words) {
    text json = {0};
    quoted(&json, words);
    return json.bytes;
}

static const char *default_of(const pointsman_parameter *rule) {
    char integer[16];
    if (!rule->optional) return NULL;
    if (rule->number) return shown(*rule->number);
    if (rule->boolean) return *rule->boolean ? "true" : "false";
    if (rule->choice) return as_text(rule->names[*rule->choice]);
    if (rule->text) return as_text(*rule->text);
    snprintf(integer, sizeof integer, "%u", (unsigned)*rule->integer);
    return sentence(integer, NULL);
}

static void property(text *json, const pointsman_parameter *rule) {
    say(json, "{");
    if (rule->description) keyword(json, "description", as_text(rule->description));
    const char *type = rule->number ? "number" : rule->integer ? "integer" : rule->boolean ? "boolean" : "string";
    keyword(json, "type", as_text(type));
    if (rule->number) keyword(json, "format", "\"double\"");
    if (rule->integer) keyword(json, "format", "\"uint32\"");
    keyword(json, "minimum", rule->min ? shown(*rule->min) : rule->integer ? "0" : NULL);
    keyword(json, "exclusiveMinimum", rule->above ? shown(*rule->above) : NULL);
    keyword(json, "maximum", rule->max ? shown(*rule->max) : rule->integer ? "4294967295" : NULL);
    keyword(json, "exclusiveMaximum", rule->below ? shown(*rule->below) : NULL);
    if (rule->choice) {
        text names = {0};
        say(&names, "[");
        for (size_t place = 0; rule->names[place]; place++) {
            if (place) say(&names, ",");
            quoted(&names, rule->names[place]);
        }
        say(&names, "]");
        keyword(json, "enum", names.bytes);
    }
    keyword(json, "default", default_of(rule));
    say(json, "}");
}

const char *pointsman_parameters_schema(const pointsman_parameter *parameters) {
    text json = {0}, properties = {0}, required = {0};
    say(&properties, "{");
    say(&required, "[");
    for (const pointsman_parameter *rule = parameters; rule->name; rule++) {
        text one = {0};
        property(&one, rule);
        keyword(&properties, rule->name, one.bytes);
        if (rule->optional) continue;
        if (required.length > 1) say(&required, ",");
        quoted(&required, rule->name);
    }
    say(&properties, "}");
    say(&required, "]");
    say(&json, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\"");
    keyword(&json, "properties", properties.bytes);
    if (required.length > 2) keyword(&json, "required", required.bytes);
    keyword(&json, "additionalProperties", "false");
    say(&json, "}");
    return json.bytes;
}
