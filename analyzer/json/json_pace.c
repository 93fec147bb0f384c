/* How often a call site is called, as JSON. */
#include "analyzer/step/cadence.h"

#include <jansson.h>
#include <math.h>

void json_pace(struct json_t *object, const struct result_pace *pace)
{
    const char *phase = result_phase_word(pace->phase);
    bool known = isfinite(pace->calls_per_step);
    json_object_set_new(object, "calls_per_step", known ? json_real(pace->calls_per_step) : json_null());
    json_object_set_new(object, "phase", phase ? json_string(phase) : json_null());
    json_object_set_new(object, "every_steps", pace->every ? json_integer(pace->every) : json_null());
}
