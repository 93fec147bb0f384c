/* Does the program compute a loss from what a statement stores? From the names in its source. */
#pragma once

#include "analyzer/site/builder.h"

/* Unknown: the container has no name, its source is missing, or it is passed to code that is not known. */
enum site_loss { SITE_LOSS_UNKNOWN, SITE_LOSS_NO, SITE_LOSS_YES };

/* `stack`: the allocation of what the holder keeps. The files on its call path and the holder's file are read. */
enum site_loss site_holder_loss(struct site_builder *b, uint32_t stack, const struct result_holder *holder);
