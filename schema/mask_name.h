/* Does a name suggest that its value is a secret? */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum gs_mask_kind {
    GS_MASK_NOT,
    GS_MASK_WEAK, /* possibly something else: a number or <pad> is not a secret */
    GS_MASK_STRONG,
};

/* Any spelling: --api-key, api_key, apiKey, APIKEY, wandb.api_key. */
enum gs_mask_kind gs_mask_name(const char *name, size_t length);
/* Does an option of this name take no value in the next word? --no-password, --enable-auth. */
bool gs_mask_flag(const char *name, size_t length);
/* Compares without regard to case, in ASCII. */
bool gs_mask_same(const char *text, size_t length, const char *word);
