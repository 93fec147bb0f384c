/* JSON of `gpuspy calibrate`: what gpuspy learned from recordings. */
#ifndef GPUSPY_JSON_CALIBRATION_H
#define GPUSPY_JSON_CALIBRATION_H

#include <jansson.h>
#include "analyzer/question/learn.h"

/* `l` NULL: only what is known from before. The caller owns the reference. */
json_t *json_calibration(const struct estimate_calibration *c, const struct question_learned *l);

#endif
