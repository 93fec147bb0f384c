/* Python files in archives: programs packed by zipapp or pex, folders that are shipped as one .zip. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The text of "app.pyz/package/train.py" without secrets, in memory that the caller frees; NULL: no part of the name is
 * an archive of that member, it is too large, or the archive was written after latest_ns. A relative name is resolved
 * in `folder`, which may be NULL. */
char *run_zip_source(const char *file, const char *folder, int64_t latest_ns, size_t *length);
