-- The tables of a recording of bounded size, beside those of gpuspy.sql.
--
-- A recording that GPUSPY_KEEP bounds loses old rows: those that ended before meta.kept_from_ns, and were not live at
-- the peak of a series or at a failure. So what was live at any later time, at each peak and at each failure is
-- complete, and what is still live has all its rows. The removed rows are summed up in the tables removed, removed_after, level,
-- removed_scope, removed_course and removed_time. This one has totals by call path.
CREATE TABLE removed (
    what INTEGER NOT NULL,      -- removed_what
    kind INTEGER NOT NULL,      -- allocation: kind of its row without the thread; copy: likewise + size·2^24, size 0 up
                                -- to 16 bytes, 1 up to 64 KiB, 2 more; sync: kind + (device+1)·8 + api·1024;
                                -- memset: async + (device+1)·2 + api·256; mark: its kind
    stack_id INTEGER NOT NULL,  -- 0 none
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    ns INTEGER NOT NULL,        -- of allocations and marks: how long they lasted; else how long the host was in the calls
    first_ns INTEGER NOT NULL,  -- when the first of them began
    PRIMARY KEY (what, kind, stack_id)
) WITHOUT ROWID;
CREATE TABLE removed_after (    -- totals of the removed allocations by the last failure before their end whose live
                                -- memory is kept
    after_ns INTEGER NOT NULL,  -- when that failure occurred; 0: there was none
    kind INTEGER NOT NULL,      -- layer, space and device as in allocation_row.kind, whose lowest 12 bits this is
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (after_ns, kind)
) WITHOUT ROWID;
CREATE TABLE level (            -- running totals, from the start to the last removal
    series INTEGER NOT NULL,    -- series
    device INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    low_bytes INTEGER NOT NULL, -- the smallest total between the two …
    high_bytes INTEGER NOT NULL, -- … and the largest
    PRIMARY KEY (series, device, start_ns)
) WITHOUT ROWID;
CREATE TABLE removed_scope (    -- peaks within NVTX ranges by name and series, from the start to the last removal
    domain TEXT,                -- NULL: the default domain
    name TEXT NOT NULL,         -- after 1024 names, further ones have '#' in place of their numbers, and ranges
                                -- that still have no row are counted in meta.scopes_left_out
    series INTEGER,             -- series: device or tensor; NULL: nothing was live
    device INTEGER,
    peak_bytes INTEGER,         -- the most that was live while a range of the name was open
    peak_ns INTEGER,
    entry_bytes INTEGER,        -- live when the period with that peak began …
    exit_bytes INTEGER,         -- … and when it ended; NULL: it is open
    open_entry_bytes INTEGER,   -- live when the period that is still open began; NULL: none is open
    count INTEGER NOT NULL,     -- ranges that began by until_ns
    ended_ns INTEGER NOT NULL,  -- the total duration of those that ended by then
    until_ns INTEGER NOT NULL   -- the last event that this row includes
);
CREATE TABLE removed_course (   -- the smallest live size of a call path, from the start to the last removal, a row for each
                                -- change; at most 2048 call paths: meta.courses_left_out counts the others
    kind INTEGER NOT NULL,      -- as in removed_after
    stack_id INTEGER NOT NULL,  -- 0 none
    first_id INTEGER NOT NULL,  -- while the allocations from this id on were made, up to the path's next row …
    low_bytes INTEGER NOT NULL, -- … at least this much was live; 0 before its first row
    PRIMARY KEY (kind, stack_id, first_id)
) WITHOUT ROWID;
CREATE TABLE removed_time (     -- when allocations were made, from the start to the last removal
    first_id INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL    -- when the allocation with this id was made
);

-- Numbers → words, from the lists in schema/event.h.
CREATE TABLE removed_what (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE series (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
