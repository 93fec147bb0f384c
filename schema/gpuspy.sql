-- The database of one recorded process. Needs SQLite 3.31 or later to read (generated columns in mark).
-- Times are nanoseconds since the process's start of recording (process.start_real_ns is the wall
-- clock at time 0); sizes are bytes; device -1 is none or unknown.
-- PRAGMA user_version is the schema version, PRAGMA application_id is 0x67707379 ("gpsy").

CREATE TABLE meta (
    key TEXT PRIMARY KEY,   -- the name of the value
                            -- gpuspy_version: the version of the recorder
                            -- events, lost_events, damaged_records: how many were recorded, dropped, invalid
                            -- unknown_frees: frees of memory whose allocation is not in the recording
                            -- implied_frees: allocations that must have ended, because their address was allocated again
                            -- without a recorded free
                            -- failed_frees: frees that CUDA refused
                            -- torch_version: the version of the loaded PyTorch, such as 2.6.0+cu124
                            -- stacks_lack: what stacks lack and why, such as "no Python stacks: this version of
                            -- gpuspy does not know Python 4.0.1"
                            -- exit_status: the argument of exit (0 to 255); absent if the process ended by a signal or
                            -- _exit
                            -- exit_signal: the signal that ended the process, if gpuspy run started it
                            -- exception: the exception that no Python code caught, such as "ValueError: message", if
                            -- the exit status is not 0
                            -- exception_place: the program's innermost line in its traceback
                            -- python_gc: 0 if Python's garbage collector was off at that exception
                            -- env: present if gpuspy read the environment variables that change how memory is used
                            -- (interpose/settings.def)
                            -- env.NAME: such a variable, with its value at the first CUDA call; variables that were not
                            -- set have no row
                            -- sources: 1 if the table source is filled, 0 if GPUSPY_SOURCE=0 forbids it
                            -- symbolized: the version of the gpuspy symbolize that stored names of native frames
                            -- attached_after_s: how long the process had run when gpuspy attached to it
                            -- attached_blocks: how many blocks PyTorch listed then, each with a row in allocation
                            -- attached_tensor_bytes.N: the bytes that PyTorch had allocated on device N before
                            -- stopped: why the recording ended before the program: "detach": gpuspy detach; "filter": a
                            -- seccomp filter or Syscall User Dispatch; "disk": the disk was nearly full; "keep": what
                            -- GPUSPY_KEEP must keep exceeds it; "reader": another program read it in one transaction
                            -- until GPUSPY_KEEP had no room left for its log
                            -- keep: the bytes of GPUSPY_KEEP, 0 if rows were removed because the disk was nearly full
                            -- kept_from_ns: rows that ended before this time were removed (see the table removed)
                            -- scopes_left_out: the number of NVTX ranges before kept_from_ns whose peak is unknown,
                            -- because the program has too many names
    value
) WITHOUT ROWID;

CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,       -- the same for all processes of one run
    pid INTEGER NOT NULL,
    ppid INTEGER,
    rank INTEGER,               -- in a distributed run; NULL: unknown
    host TEXT,
    command TEXT,               -- argv, joined by spaces; secrets are masked
    cwd TEXT,
    exe TEXT,
    python_version TEXT,        -- NULL: no Python in the process
    start_real_ns INTEGER,      -- CLOCK_REALTIME at time 0
    end_ns INTEGER,             -- normal end, or the last event of a process that died; NULL: still recording
    complete INTEGER,           -- 1: ended normally, 0: died (complete up to its last call), NULL: still recording
    lost_events INTEGER NOT NULL DEFAULT 0, -- events dropped because there was no space
    lost_first_ns INTEGER       -- when the first event was dropped
);

CREATE TABLE thread (
    id INTEGER PRIMARY KEY,     -- unique in the recording, in no particular order
    process_id INTEGER NOT NULL,
    tid INTEGER,                -- the kernel's thread id
    name TEXT
);

CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER NOT NULL,    -- CUDA ordinal in this process
    name TEXT,
    total_bytes INTEGER,        -- as the driver reports it, or the cap of GPUSPY_LIMIT
    free_bytes INTEGER,         -- when gpuspy first saw the device; NULL: unknown
    seen_ns INTEGER,
    physical_bytes INTEGER      -- if GPUSPY_LIMIT caps the device: as the driver reports it; else NULL
);

CREATE TABLE module (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    build_id TEXT               -- hexadecimal; NULL: none
);

CREATE TABLE frame (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,      -- frame_kind
    function TEXT,              -- of a native frame: NULL until gpuspy symbolize stores it
    file TEXT,
    line INTEGER,
    module_id INTEGER,          -- of native frames only
    offset INTEGER              -- of native frames only: address of the call in the module (return address - 1)
);

CREATE TABLE source (           -- the program's own Python files, as they were when recording began
    id INTEGER PRIMARY KEY,
    file TEXT NOT NULL UNIQUE,  -- as in frame
    bytes INTEGER NOT NULL,     -- size of text
    left_out TEXT,              -- why there is no text: missing (or not a Python file), changed (written after recording
                                -- began), large (above 256 KiB), full (4 MiB are already stored), installed
                                -- (a package's RECORD lists it: not the program's own)
    text TEXT                   -- secrets are masked, as in process.command
);

-- If `gpuspy symbolize` found functions inlined at native frames, it adds a table of them; frame then names
-- the innermost one that is not in a system header:
-- CREATE TABLE inlined_frame (frame_id INTEGER NOT NULL, level INTEGER NOT NULL, -- 0: the innermost
--                             function TEXT, file TEXT, line INTEGER, PRIMARY KEY (frame_id, level)) WITHOUT ROWID

CREATE TABLE stack (            -- a tree: a stack is its innermost frame and the stack that called it
    id INTEGER PRIMARY KEY,
    parent_id INTEGER,          -- the caller, NULL at the root
    frame_id INTEGER NOT NULL,
    depth INTEGER NOT NULL      -- number of frames up to the root, including this one
);

CREATE TABLE api (              -- entry points by number; from 4096 on, those whose calls gpuspy could not record
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL
);

-- One row per lifetime; ordered by id, rows are also ordered by alloc_ns. Query the view allocation,
-- not this packed table. Generated columns in the table itself would be computed at every insert, which
-- would cost the recorded program more than the row does.
-- kind packs the small columns, to keep a row below 40 bytes:
-- layer + space·4 + (device+1)·32 + api·4096 + (alloc_thread_id-2)·2^23
-- (so that the kind of the first two threads fits three bytes).
CREATE TABLE allocation_row (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    address INTEGER NOT NULL,   -- of physical memory (space vmm, or imported), its handle
    bytes INTEGER NOT NULL,     -- negative: a tensor whose request is known, see the view
    alloc_ns INTEGER NOT NULL,
    life_ns INTEGER,            -- NULL: never freed while recorded
    stream INTEGER,             -- 0: default or none; -1, of a tensor: unknown
    alloc_stack_id INTEGER,
    free_stack_id INTEGER       -- 4294967295 while live: room in the row for its end
);
-- The bytes of a tensor whose request is known are stored as -(request + n · 2^40): its block is n · 512 bytes larger
-- than the request rounded up to 512. In most rows n is 0, so that the request takes no space.
CREATE VIEW allocation AS
SELECT id, 1 AS process_id,                 -- a database holds one process
       ((kind >> 5) & 127) - 1 AS device,
       kind & 3 AS layer,                   -- layer
       (kind >> 2) & 7 AS space,            -- space; shared: its owner counts it, and no total here does;
                                            -- pool, of a tensor: in a private pool of a CUDA graph
       (kind >> 12) & 2047 AS api,          -- api
       address,
       CASE WHEN bytes < 0 AND kind & 3 = 1 THEN ((-bytes & 1099511627775) + 511 & ~511) + (-bytes >> 40) * 512
            ELSE bytes END AS bytes,
       alloc_ns, alloc_ns + life_ns AS free_ns, stream, alloc_stack_id,
       nullif(free_stack_id, 4294967295) AS free_stack_id,
       (kind >> 23) + 2 AS alloc_thread_id, kind, life_ns,
       CASE WHEN bytes < 0 AND kind & 3 = 1 THEN -bytes & 1099511627775 END AS requested_bytes -- of a tensor, the
                                            -- size that the program requested; bytes is its block; NULL: unknown
FROM allocation_row;

-- kind packs direction + host_memory·8 + async·32 + (device+1)·64 + api·8192 + (thread_id-2)·2^24.
CREATE TABLE copy_row (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    blocked_ns INTEGER NOT NULL, -- how long the call blocked the host
    stream INTEGER,
    stack_id INTEGER
);
CREATE VIEW copy AS
SELECT id, 1 AS process_id,
       ((kind >> 6) & 127) - 1 AS device,
       kind & 7 AS direction,               -- direction
       (kind >> 3) & 3 AS host_memory,      -- host_memory: the kind of the host's memory
       (kind >> 5) & 1 AS async,            -- 1: a call whose name ends in Async
       (kind >> 13) & 2047 AS api,          -- api
       bytes, start_ns, blocked_ns, stream, stack_id,
       (kind >> 24) + 2 AS thread_id, kind
FROM copy_row;

-- The addresses at which physical memory (an allocation of space vmm, or shared if it was imported) is
-- mapped. One allocation may be mapped several times; its bytes count once.
CREATE TABLE mapping (
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    allocation_id INTEGER NOT NULL,
    device INTEGER,             -- the device that has the memory
    address INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    offset INTEGER NOT NULL,    -- in the allocation
    map_ns INTEGER NOT NULL,
    unmap_ns INTEGER,           -- NULL while mapped
    stack_id INTEGER
);

-- A tensor that PyTorch freed while another stream could still use it (record_stream): PyTorch does not
-- reuse its memory until all of its events have completed. One row per event. gpuspy infers which events
-- belong to a free: the caller of the free's innermost frame is also in the event's stack.
CREATE TABLE pending_free (
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    allocation_id INTEGER NOT NULL,
    event INTEGER NOT NULL,
    free_ns INTEGER NOT NULL,
    done_ns INTEGER,            -- when the allocator learned that the event had completed; NULL: not while recorded
    event_stack_id INTEGER,     -- where the event was recorded
    free_stack_id INTEGER       -- where the free was reported, with native frames
);

-- Allocations that are nodes of a graph: they have an address, but memory only while the graph runs (see
-- pool). No total counts them.
CREATE TABLE graph_memory (
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER,
    api INTEGER,
    address INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    freed_ns INTEGER,           -- the last free, inside the graph or outside; NULL: none
    stream INTEGER,
    stack_id INTEGER,
    thread_id INTEGER
);

CREATE TABLE pool (             -- what CUDA reported about a pool
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER,
    pool INTEGER NOT NULL,      -- its handle; 0: the device's memory for graphs
    time_ns INTEGER NOT NULL,
    used_bytes INTEGER,         -- by allocations
    reserved_bytes INTEGER,     -- of the device's memory
    api INTEGER                 -- the call at which gpuspy asked CUDA
);

CREATE TABLE allocator_fact (   -- state read from PyTorch's caching allocator
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    kind INTEGER NOT NULL,      -- allocator_fact_kind
    address INTEGER,            -- of a tensor in a segment of the pool
    value INTEGER NOT NULL      -- cap: the bytes that it may reserve (set_per_process_memory_fraction), 0: no limit;
                                -- pool: 0: the default pool, -1: unknown, else the number of a private pool (CUDA
                                -- graphs, MemPool); unused: a private pool from which nothing allocates any more;
                                -- synced: how often it waited for all streams so far, because the cache was emptied
                                -- or a request tried again
);

CREATE TABLE call_count (       -- calls that are only counted (launches, queries), by second
    process_id INTEGER NOT NULL,
    second INTEGER NOT NULL,    -- of the recording in which they were counted
    device INTEGER NOT NULL,    -- 14: all devices above 13
    stream INTEGER NOT NULL,    -- 48 bits of the handle; 0: default or none, -1: unknown
    api INTEGER NOT NULL,
    not_ready INTEGER NOT NULL, -- 1: a query whose result was "not ready"
    count INTEGER NOT NULL,
    PRIMARY KEY (process_id, second, device, stream, api, not_ready)
) WITHOUT ROWID;

CREATE TABLE memset (           -- fills; columns as in copy
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER,
    bytes INTEGER NOT NULL,
    async INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    blocked_ns INTEGER NOT NULL,
    stream INTEGER,
    stack_id INTEGER,
    thread_id INTEGER,
    api INTEGER
);

CREATE TABLE sync (             -- calls whose purpose is to wait, and frees that waited
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER,
    kind INTEGER NOT NULL,      -- sync_kind
    api INTEGER,
    start_ns INTEGER NOT NULL,
    blocked_ns INTEGER NOT NULL,
    handle INTEGER,             -- the stream or event that the host waited for
    stack_id INTEGER,
    thread_id INTEGER
);

CREATE TABLE oom (              -- each failed allocation
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER,
    layer INTEGER NOT NULL,     -- device: the CUDA call failed, tensor: PyTorch's allocator failed
    space INTEGER,
    api INTEGER,
    requested_bytes INTEGER NOT NULL,
    free_bytes INTEGER,         -- of the device at that moment; NULL: unknown
    total_bytes INTEGER,
    tensor_allocated INTEGER,   -- PyTorch's own total; NULL: unknown
    tensor_reserved INTEGER,
    time_ns INTEGER NOT NULL,
    fatal INTEGER NOT NULL,     -- 0: the same thread later allocated as much at once, or continued to allocate
    stack_id INTEGER,
    thread_id INTEGER,
    capped INTEGER              -- 1: refused by GPUSPY_LIMIT, not by the device
);

CREATE TABLE sample (           -- memory of a device, as CUDA or NVML reported it
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    free_bytes INTEGER,
    total_bytes INTEGER,        -- NVML's total is a little larger than CUDA's, because it includes the driver's
    source INTEGER NOT NULL,    -- sample_source
    utilisation INTEGER,        -- percent of the time in which a kernel ran (like all that follows: only from NVML,
                                -- once per second; NULL: unknown)
    memory_utilisation INTEGER, -- percent of the time in which memory was read or written
    own_bytes INTEGER,          -- held by this process
    other_bytes INTEGER,        -- held by all other processes that NVML lists
    other_pid INTEGER,          -- the process that holds most of these bytes
    other_name TEXT             -- its name
);

CREATE TABLE reserved (         -- PyTorch's reserved total, each time it changed
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    device INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);

CREATE TABLE tensor_check (     -- gpuspy's running total compared with PyTorch's, at every event
    process_id INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    device INTEGER NOT NULL,
    events INTEGER NOT NULL,
    mismatches INTEGER NOT NULL,
    first_mismatch_ns INTEGER,
    first_difference INTEGER,   -- gpuspy's total minus PyTorch's
    last_difference INTEGER,
    PRIMARY KEY (process_id, layer, device)
) WITHOUT ROWID;

CREATE TABLE handle (           -- streams and contexts that the process created
    id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,      -- handle_kind
    handle INTEGER NOT NULL,
    device INTEGER,
    create_ns INTEGER,
    destroy_ns INTEGER,
    api INTEGER,
    stack_id INTEGER
);

CREATE TABLE mark (             -- the program's own marks: NVTX ranges and moments, cudaProfilerStart
    id INTEGER PRIMARY KEY,     -- in order of start_ns
    kind INTEGER NOT NULL,      -- mark_kind; a range is one row: push (nested, of one thread) or start (also one that was
                                -- open when the recording began)
    name INTEGER,               -- mark_name; NULL: none
    domain INTEGER,             -- mark_name; NULL: the default domain
    start_ns INTEGER NOT NULL,
    life_ns INTEGER,            -- NULL: a range that did not end while recorded
    thread_id INTEGER,          -- the thread that began it
    process_id INTEGER AS (1) VIRTUAL,
    end_ns INTEGER AS (start_ns + life_ns) VIRTUAL
);
CREATE TABLE mark_name (        -- the same text may occur more than once
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL
);

-- Numbers → words, filled by the store from the lists in schema/event.h.
CREATE TABLE layer (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE space (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE direction (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE host_memory (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE sync_kind (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE frame_kind (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE sample_source (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE allocator_fact_kind (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE mark_kind (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE handle_kind (id INTEGER PRIMARY KEY, word TEXT NOT NULL);

-- While a recording is not finished: how much of each slot of the spool has become rows, what its frame and
-- stack numbers mean, its last free (undone if it fails), and figures that cannot be derived from the
-- rows. Dropped at the end.
CREATE TABLE recovery_thread (
    thread INTEGER PRIMARY KEY, seq INTEGER, offset INTEGER, time_ns INTEGER,
    free_layer INTEGER, free_address INTEGER, free_id INTEGER,
    row INTEGER                 -- id in table thread of the thread that uses the slot now; 0 unknown
);
-- What the last free, unmapping or release of a thread undid, and the context of an allocation, if it is
-- not the primary one of the row's own device.
CREATE TABLE recovery_owner (allocation_id INTEGER PRIMARY KEY, context INTEGER, home INTEGER);
-- Physical memory: its references, and whether its handle still names it.
CREATE TABLE recovery_object (allocation_id INTEGER PRIMARY KEY, refs INTEGER, named INTEGER);
CREATE TABLE recovery_undo (
    thread INTEGER PRIMARY KEY, op INTEGER, handle INTEGER, address INTEGER, bytes INTEGER,
    time_ns INTEGER, allocation_id INTEGER
);
-- The part of the spool's counters that call_count already contains.
CREATE TABLE recovery_counter (slot INTEGER PRIMARY KEY, key INTEGER, count INTEGER);
CREATE TABLE recovery_value (name TEXT, number INTEGER, value INTEGER, PRIMARY KEY (name, number)) WITHOUT ROWID;
CREATE TABLE recovery_number (
    thread INTEGER, what INTEGER, number INTEGER, id INTEGER, -- what: 0 frame, 1 stack
    PRIMARY KEY (thread, what, number)
) WITHOUT ROWID;

CREATE TABLE recovery_mark (    -- open ranges, by the key that their end will have
    mark_id INTEGER PRIMARY KEY, kind INTEGER, key INTEGER
);

-- Views for queries ---------------------------------------------------------------------------

CREATE VIEW allocations AS
SELECT a.id, a.process_id, a.device, l.word AS layer, s.word AS space, p.name AS api, a.address, a.bytes,
       a.alloc_ns, a.free_ns, a.stream, a.alloc_stack_id, a.free_stack_id, a.alloc_thread_id, a.requested_bytes
FROM allocation a LEFT JOIN layer l ON l.id = a.layer LEFT JOIN space s ON s.id = a.space
     LEFT JOIN api p ON p.id = a.api;

CREATE VIEW copies AS
SELECT c.id, c.process_id, c.device, d.word AS direction, c.bytes, h.word AS host_memory, c.async,
       p.name AS api, c.start_ns, c.blocked_ns, c.stream, c.stack_id, c.thread_id
FROM copy c LEFT JOIN direction d ON d.id = c.direction LEFT JOIN host_memory h ON h.id = c.host_memory
     LEFT JOIN api p ON p.id = c.api;

CREATE VIEW mappings AS
SELECT m.id, m.process_id, m.device, s.word AS space, m.address, m.bytes, m.offset, m.map_ns, m.unmap_ns,
       m.allocation_id, m.stack_id
FROM mapping m LEFT JOIN allocation a ON a.id = m.allocation_id LEFT JOIN space s ON s.id = a.space;

CREATE VIEW calls AS            -- calls that are only counted, by second
SELECT c.process_id, c.second, c.device, nullif(c.stream, -1) AS stream, p.name AS api,
       CASE c.not_ready WHEN 1 THEN 'not ready' ELSE 'done' END AS answer, c.count
FROM call_count c LEFT JOIN api p ON p.id = c.api;

CREATE VIEW syncs AS
SELECT s.id, s.process_id, s.device, k.word AS kind, p.name AS api, s.start_ns, s.blocked_ns, s.handle,
       s.stack_id, s.thread_id
FROM sync s LEFT JOIN sync_kind k ON k.id = s.kind LEFT JOIN api p ON p.id = s.api;

CREATE VIEW ooms AS
SELECT o.id, o.process_id, o.device, l.word AS layer, s.word AS space, p.name AS api, o.requested_bytes,
       o.free_bytes, o.total_bytes, o.tensor_allocated, o.tensor_reserved, o.time_ns, o.fatal, o.stack_id,
       o.thread_id, o.capped
FROM oom o LEFT JOIN layer l ON l.id = o.layer LEFT JOIN space s ON s.id = o.space
     LEFT JOIN api p ON p.id = o.api;

CREATE VIEW marks AS
SELECT m.id, m.process_id, k.word AS kind, n.name, d.name AS domain, m.start_ns, m.end_ns, m.thread_id
FROM mark m LEFT JOIN mark_kind k ON k.id = m.kind LEFT JOIN mark_name n ON n.id = m.name
     LEFT JOIN mark_name d ON d.id = m.domain;

CREATE VIEW frames AS
SELECT f.id, k.word AS kind, f.function, f.file, f.line, f.module_id, m.path AS module, m.build_id, f.offset
FROM frame f LEFT JOIN frame_kind k ON k.id = f.kind LEFT JOIN module m ON m.id = f.module_id;

-- The innermost Python line of each stack, or its innermost frame if it has none. `gpuspy sql` replaces this
-- view with one of the line that the report names: the innermost of the user's own code, past libraries and helpers.
CREATE VIEW sites AS
WITH RECURSIVE up(stack_id, at, frame_id, parent_id, kind, hops) AS (
    SELECT s.id, s.id, s.frame_id, s.parent_id, f.kind, 0 FROM stack s JOIN frame f ON f.id = s.frame_id
    UNION ALL
    SELECT u.stack_id, s.id, s.frame_id, s.parent_id, f.kind, u.hops + 1
    FROM up u JOIN stack s ON s.id = u.parent_id JOIN frame f ON f.id = s.frame_id
    WHERE u.kind <> 0 AND u.hops < 4096
)
SELECT s.id AS stack_id, f.function, f.file, f.line, k.word AS kind
FROM stack s
     LEFT JOIN up u ON u.stack_id = s.id AND u.kind = 0
     JOIN frame f ON f.id = COALESCE(u.frame_id, s.frame_id)
     LEFT JOIN frame_kind k ON k.id = f.kind;

CREATE VIEW leaks AS
SELECT a.device, a.layer, a.space, sum(a.bytes) AS bytes, count(*) AS count, s.function, s.file, s.line
FROM allocations a LEFT JOIN sites s ON s.stack_id = a.alloc_stack_id
WHERE a.free_ns IS NULL AND NOT (a.layer = 'device' AND a.space = 'shared') GROUP BY a.device, a.layer, a.space, s.function, s.file, s.line ORDER BY bytes DESC;

-- The rows of `syncs` by line. The report's waits also contain the copies during which the host was blocked, and
-- count a copy together with the wait that follows it; copy_sites has these copies.
CREATE VIEW sync_sites AS
SELECT y.kind, y.api, count(*) AS count, sum(y.blocked_ns) / 1e9 AS blocked_s, s.function, s.file, s.line
FROM syncs y LEFT JOIN sites s ON s.stack_id = y.stack_id
GROUP BY y.kind, y.api, s.function, s.file, s.line ORDER BY blocked_s DESC;

CREATE VIEW copy_sites AS
SELECT c.direction, c.host_memory, count(*) AS count, sum(c.bytes) AS bytes,
       sum(c.blocked_ns) / 1e9 AS blocked_s, s.function, s.file, s.line
FROM copies c LEFT JOIN sites s ON s.stack_id = c.stack_id
GROUP BY c.direction, c.host_memory, s.function, s.file, s.line ORDER BY bytes DESC;
