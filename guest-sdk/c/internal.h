/* What the SDK's own files share. */
#ifndef POINTSMAN_INTERNAL_H
#define POINTSMAN_INTERNAL_H

#include "pointsman.h"

/* Room until the end of this call. */
void *pointsman_room(size_t size);

/* Reads the parameters from a JSON object; answers one sentence where something is wrong. */
const char *pointsman_parameters_read(const pointsman_parameter *parameters, const char *json, size_t length);

/* The JSON Schema of the parameters. */
const char *pointsman_parameters_schema(const pointsman_parameter *parameters);

#endif
