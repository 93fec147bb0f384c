/* Memory in the report that is not cudaMalloc's: pools, physical memory, memory of others and of graphs; calls that
 * were only counted; and databases of schema version 1. */
#include "tests/cases.h"
#include <jansson.h>
#include "analyzer/view/view_text.h"
#include "analyzer/json/view_json.h"
#include "tests/unit/synthetic.h"

static void device_level(struct syn *s, int space, int64_t at, int64_t life, int64_t mib)
{
    syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_DEVICE,
                                    .space = space,
                                    .address = (space + 1) << 24,
                                    .bytes = mib * SYN_MIB,
                                    .at = at,
                                    .life = life});
}

static void test_by_space(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "run", 1, SYN_S, 1);
    device_level(&s, GS_SPACE_DEVICE, 10, SYN_LIVE, 3);
    device_level(&s, GS_SPACE_SHARED, 20, SYN_LIVE, 50);
    device_level(&s, GS_SPACE_POOL, 30, 100, 4);
    device_level(&s, GS_SPACE_VMM, 40, 20, 8);
    device_level(&s, GS_SPACE_ARRAY, 70, 10, 1);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *p = syn_peak(r, RUN_SERIES_DEVICE);
    assert_int_equal(p->bytes, 15 * SYN_MIB);
    assert_int_equal(p->by_space[GS_SPACE_DEVICE], 3 * SYN_MIB);
    assert_int_equal(p->by_space[GS_SPACE_POOL], 4 * SYN_MIB);
    assert_int_equal(p->by_space[GS_SPACE_VMM], 8 * SYN_MIB);
    assert_int_equal(p->by_space[GS_SPACE_ARRAY], 0); /* allocated after the peak */
    assert_int_equal(syn_peak(r, RUN_SERIES_SHARED)->bytes, 50 * SYN_MIB);
    assert_int_equal(r->leaks_n, 1); /* others must free their own memory */
    assert_int_equal(r->leaks[0].bytes, 3 * SYN_MIB);
    json_t *o = json_report_build(r), *peak = json_array_get(json_object_get(o, "peak"), 0);
    const json_t *kinds = json_object_get(peak, "by_space");
    assert_int_equal(json_object_size(kinds), 3);
    assert_int_equal(json_integer_value(json_object_get(kinds, "vmm")), 8 * SYN_MIB);
    json_decref(o);
    syn_close(r);
    syn_end(&s);
}

static void test_graph_memory(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "run", 1, SYN_S, 1);
    syn_device(&s, 0, 1000 * SYN_MIB, 900 * SYN_MIB); /* 100 in use by others from the beginning */
    syn_sql(&s,
            "INSERT INTO pool(process_id,device,pool,time_ns,used_bytes,reserved_bytes) VALUES"
            "(1,0,0,300000000,1,%lld),(1,0,0,400000000,1,%lld),(1,0,77,450000000,1,%lld),"
            "(1,0,0,900000000,0,%lld)",
            30 * SYN_MIB, 64 * SYN_MIB, 5 * SYN_MIB, 32 * SYN_MIB);
    device_level(&s, GS_SPACE_DEVICE, 500 * SYN_MS, 100 * SYN_MS, 200);
    syn_sql(&s,
            "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source)"
            " VALUES(1,0,550000000,%lld,%lld,0)",
            636 * SYN_MIB, 1000 * SYN_MIB);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->memory_n, 1);
    assert_int_equal(r->memory[0].graph_bytes, 64 * SYN_MIB);
    assert_int_equal(r->memory[0].outside_bytes, 100 * SYN_MIB);
    assert_int_equal(r->memory[0].free_bytes, 636 * SYN_MIB);
    assert_int_equal(r->devices[0].graph_bytes, 64 * SYN_MIB);
    const struct result_timeline *t = &r->timelines[r->timelines_n - 1];
    assert_int_equal(t->layer, RUN_SERIES_GRAPH);
    assert_int_equal(t->n, 3);
    assert_int_equal(t->points[1].bytes, 64 * SYN_MIB);
    assert_int_equal(t->points[2].bytes, 32 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

/* An expandable segment with an unmapped piece: blocks extend over its other pieces; the holes are between the pieces,
 * not between the handles' values. */
static void test_holes_by_mapping(void **state)
{
    (void)state;
    struct syn s;
    const int64_t base = 0x7f0000000000;
    syn_start(&s);
    syn_process(&s, "run", 1, SYN_S, 1);
    for (int i = 0; i < 5; i++) {
        int64_t id = syn_alloc(&s, (struct syn_alloc){.space = GS_SPACE_VMM,
                                                      .address = 16 + i,
                                                      .bytes = 2 * SYN_MIB,
                                                      .at = 10 + i,
                                                      .life = i == 2 ? 500 : SYN_LIVE});
        syn_sql(&s,
                "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,"
                "unmap_ns) VALUES(1,%lld,0,%lld,%lld,0,%d,%s)",
                (long long)id, (long long)(base + i * 2 * SYN_MIB), 2 * SYN_MIB, 20 + i, i == 2 ? "510" : "NULL");
    }
    struct syn_alloc block = {.layer = GS_LAYER_TENSOR, .life = SYN_LIVE};
    block.address = base + SYN_MIB; /* across the first two */
    block.bytes = 2 * SYN_MIB;
    block.at = 600;
    syn_alloc(&s, block);
    block.address = base + 6 * SYN_MIB;
    block.bytes = SYN_MIB;
    block.at = 610;
    syn_alloc(&s, block);
    syn_oom(
        &s,
        (struct syn_oom){
            .layer = GS_LAYER_DEVICE, .fatal = 1, .requested = 4 * SYN_MIB, .free = 1, .total = SYN_GIB, .at = 700});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->fragmentation_n, 1);
    const struct result_fragmentation *f = &r->fragmentation[0];
    assert_int_equal(f->segments, 2);
    assert_int_equal(f->blocks, 2);
    assert_int_equal(f->active_bytes, 3 * SYN_MIB);
    assert_int_equal(f->free_bytes, 5 * SYN_MIB); /* 1 before and 1 after the first block; 3 */
    assert_int_equal(f->largest_free_bytes, 3 * SYN_MIB);
    syn_close(r);
    syn_end(&s);
}

static char *text_of(const struct result_report *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    view_text(&(struct draw_text){.report = r, .term = {.width = 100}, .out = f, .top = 10, .database = "run.db"});
    fclose(f);
    return text;
}

static void test_counted_calls(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "run", 1, 10 * SYN_S, 1);
    device_level(&s, GS_SPACE_DEVICE, 10, 20, 1);
    syn_sql(&s, "INSERT INTO api VALUES(50,'cudaLaunchKernel'),(51,'cudaEventQuery')");
    syn_sql(&s, "INSERT INTO call_count VALUES(1,0,0,16,50,0,1000),(1,1,0,0,50,0,500),"
                "(1,1,0,0,51,1,400000),(1,1,0,0,51,0,100)");
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->calls_n, 2);
    assert_string_equal(r->calls[0].api, "cudaEventQuery");
    assert_int_equal(r->calls[0].count, 400100);
    assert_int_equal(r->calls[0].not_ready, 400000);
    assert_int_equal(r->calls[1].count, 1500);
    assert_true(r->calls[1].per_s == 150);
    bool advised = false;
    for (size_t i = 0; i < r->advice_n; i++)
        advised = advised || (strstr(r->advice[i].text, "cudaEventQuery returned not ready 40,000 times") &&
                              strstr(r->advice[i].text, "the line is unknown"));
    assert_true(advised);
    char *text = text_of(r);
    assert_non_null(strstr(text, "launches (150 per second)"));
    assert_non_null(strstr(text, "queries that returned not ready"));
    free(text);
    json_t *o = json_report_build(r);
    const json_t *call = json_array_get(json_object_get(o, "calls"), 1);
    assert_string_equal(json_string_value(json_object_get(call, "api")), "cudaLaunchKernel");
    assert_true(json_real_value(json_object_get(call, "per_s")) == 150);
    json_decref(o);
    syn_close(r);
    syn_end(&s);
}

/* The parts of schema version 1 that differed, reduced to the needed ones. */
static const char version_1[] =
    "CREATE TABLE process(id INTEGER PRIMARY KEY,run_id TEXT NOT NULL,pid INTEGER NOT NULL,ppid,rank,"
    "host,command,cwd,exe,python_version,start_real_ns,end_ns,complete,"
    "lost_events INTEGER NOT NULL DEFAULT 0,lost_first_ns);"
    "CREATE TABLE frame(id INTEGER PRIMARY KEY,kind,function,file,line,module_id,offset);"
    "CREATE TABLE module(id INTEGER PRIMARY KEY,path,build_id);"
    "CREATE TABLE stack(id INTEGER PRIMARY KEY,parent_id,frame_id,depth);"
    "CREATE TABLE api(id INTEGER PRIMARY KEY,name);"
    "CREATE TABLE allocation(id INTEGER PRIMARY KEY,kind INTEGER NOT NULL,address INTEGER NOT NULL,"
    "bytes INTEGER NOT NULL,alloc_ns INTEGER NOT NULL,life_ns INTEGER,stream INTEGER,"
    "alloc_stack_id INTEGER,free_stack_id INTEGER,process_id INTEGER AS (1) VIRTUAL,"
    "free_ns INTEGER AS (alloc_ns + life_ns) VIRTUAL,layer INTEGER AS (kind & 3) VIRTUAL);"
    "CREATE TABLE copy(id INTEGER PRIMARY KEY,kind INTEGER NOT NULL,bytes INTEGER NOT NULL,"
    "start_ns INTEGER NOT NULL,blocked_ns INTEGER NOT NULL,stream INTEGER,stack_id INTEGER,"
    "process_id INTEGER AS (1) VIRTUAL,direction INTEGER AS (kind & 7) VIRTUAL);"
    "CREATE TABLE sync(id INTEGER PRIMARY KEY,process_id,device,kind,api,start_ns,blocked_ns,handle,"
    "stack_id,thread_id);"
    "CREATE TABLE oom(id INTEGER PRIMARY KEY,process_id,device,layer,space,api,requested_bytes,"
    "free_bytes,total_bytes,tensor_allocated,tensor_reserved,time_ns,fatal,stack_id,thread_id);"
    "CREATE TABLE mark(id INTEGER PRIMARY KEY,process_id INTEGER NOT NULL,time_ns INTEGER NOT NULL,"
    "name TEXT NOT NULL,thread_id INTEGER);";

static void test_version_1(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_done(&s);
    unlink(s.path);
    assert_int_equal(sqlite3_open(s.path, &s.db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s.db, version_1, NULL, NULL, NULL), SQLITE_OK);
    syn_sql(&s, "PRAGMA application_id=%d; PRAGMA user_version=1; BEGIN", GS_APPLICATION_ID);
    syn_process(&s, "run", 1, SYN_S, 1);
    syn_sql(&s,
            "INSERT INTO allocation(kind,address,bytes,alloc_ns,life_ns,stream) VALUES"
            "(%lld,4096,100,10,20,0),(%lld,8192,200,15,NULL,0)",
            GS_ALLOCATION_KIND(GS_LAYER_DEVICE, GS_SPACE_DEVICE, 0, 1, 1),
            GS_ALLOCATION_KIND(GS_LAYER_DEVICE, GS_SPACE_POOL, 0, 1, 1));
    syn_sql(&s, "INSERT INTO copy(kind,bytes,start_ns,blocked_ns,stream) VALUES(%lld,50,20,5,0)",
            GS_COPY_KIND(GS_DIR_H2D, GS_HOSTMEM_PAGEABLE, 0, 0, 1, 1));
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(syn_peak(r, RUN_SERIES_DEVICE)->bytes, 300);
    assert_int_equal(syn_peak(r, RUN_SERIES_DEVICE)->end_bytes, 200);
    assert_int_equal(r->transfers_n, 1);
    assert_int_equal(r->transfers[0].bytes, 50);
    assert_int_equal(r->calls_n, 0);
    syn_close(r);
    syn_end(&s);
}

CASES(test_by_space, test_graph_memory, test_holes_by_mapping, test_counted_calls, test_version_1)
