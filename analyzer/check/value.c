/* A gate's figures for display. */
#include <math.h>
#include "analyzer/check/check.h"
#include "analyzer/base/units.h"

/* An estimate may have more parameters than bytes can count. */
static uint64_t round_bytes(double bytes)
{
    return bytes >= 0x1p63 ? INT64_MAX : bytes > 0 ? (uint64_t)(bytes + 0.5) : 0;
}

char *check_gate_value(const struct check_gate *g, double value, char out[GATE_VALUE])
{
    double whole = round(value * 100) / 100;
    if (isnan(value))
        snprintf(out, GATE_VALUE, "?");
    else if (g->unit == UNIT_BYTES || g->unit == UNIT_PEAK || g->unit == UNIT_LEAKS || g->unit == UNIT_BUDGET)
        snprintf(out, GATE_VALUE, "%s", UNITS_BYTES(round_bytes(value)));
    else if (g->unit == UNIT_BYTES_STEP)
        snprintf(out, GATE_VALUE, "%s per step", UNITS_BYTES(round_bytes(value)));
    else if (g->unit == UNIT_NUMBER_STEP)
        snprintf(out, GATE_VALUE, whole == floor(whole) ? "%.0f per step" : "%.2f per step", whole);
    else if (g->unit == UNIT_SHARE)
        snprintf(out, GATE_VALUE, "%s", UNITS_SHARE(value));
    else
        snprintf(out, GATE_VALUE, "%s", UNITS_COUNT((uint64_t)value));
    return out;
}
