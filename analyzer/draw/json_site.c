/* Frames, call sites and processes in JSON. */
#include "analyzer/draw/json_site.h"

#include "analyzer/base/arena.h"
#include "analyzer/run/words.h"

json_t *draw_json_frame(const struct run_frame *f)
{
    json_t *o = json_object();
    set_text(o, "kind", run_frame_word(f->kind));
    SET_MEMBERS(o, f, function, file);
    set_json(o, "line", f->line ? json_integer(f->line) : NULL);
    if (f->kind == GS_FRAME_NATIVE) SET_MEMBERS(o, f, module, offset);
    return o;
}

json_t *draw_json_frames(struct run *run, uint32_t stack)
{
    size_t n;
    const struct run_frame *places = run_frame_places(run, stack, &n);
    return LIST_OF(n, i, draw_json_frame(&places[i]));
}

json_t *draw_json_site(const struct result_site *s)
{
    if (!s->known) return json_null();
    json_t *o = json_object();
    set_text(o, "file", s->file);
    set_json(o, "line", s->line ? json_integer(s->line) : NULL);
    set_text(o, "function", s->function);
    set_text(o, "kind", run_frame_word(s->kind));
    set_bool(o, "library", s->library);
    set_bool(o, "at_exit", s->exit);
    SET_MEMBERS(o, s, helper, operation);
    set_json(o, "via", s->via ? draw_json_frame(s->via) : NULL);
    set_json(o, "inner", s->inner ? draw_json_frame(s->inner) : NULL);
    set_json(o, "caller", s->caller ? draw_json_frame(s->caller) : NULL);
    return o;
}

static json_t *holder_json(const struct result_holder *h)
{
    json_t *o = json_object();
    SET_MEMBERS(o, h, file, line, function, text);
    set_text(o, "certainty", "guess");
    set_text(o, "why", h->why);
    return o;
}

void draw_json_holders(json_t *o, const struct result_holder *list, size_t n)
{
    set_json(o, "holder", n ? holder_json(&list[0]) : NULL);
    set_json(o, "holders", LIST_OF(n, i, holder_json(&list[i])));
}

json_t *draw_json_source(const struct result_excerpt *list, size_t n)
{
    json_t *rows = json_array();
    EACH (e, list, n) {
        for (size_t k = 0; k < e->n; k++) {
            json_t *o = json_add_object(rows);
            const int line = e->first_line + (int)k;
            set_text(o, "file", e->file);
            set_json(o, "line", json_integer(line));
            set_text(o, "text", e->lines[k]);
            set_bool(o, "marked", line == e->line);
            SET_MEMBERS(o, e, role, from_disk, cell);
        }
    }
    return rows;
}

void draw_json_process(json_t *o, const struct run_process *p)
{
    char failure[RUN_FAILURE_TEXT];
    SET_MEMBERS(o, p, pid, ppid, rank, host, command);
    set_text(o, "database", run_shown_path(p->path));
    SET_MEMBERS(o, p, python_version, stopped);
    set_real(o, "kept_from_s", p->kept_from_ns ? (double)p->kept_from_ns / 1e9 : NAN);
    set_bytes(o, "keep_bytes", p->keep_bytes ? p->keep_bytes : RUN_UNKNOWN);
    set_real(o, "attached_after_s", p->attached_after_s > 0 ? p->attached_after_s : NAN);
    set_text(o, "torch_version", p->torch_version);
    set_real(o, "start_s",
             p->start_real_ns == RUN_UNKNOWN || p->start_real_ns <= 0 ? NAN : (double)p->start_real_ns / 1e9);
    set_real(o, "duration_s", (double)p->end_ns / 1e9);
    set_bool(o, "complete", p->complete);
    set_json(o, "exit_status", p->exit_status >= 0 ? json_integer(p->exit_status) : json_null());
    set_json(o, "exit_signal", p->exit_signal ? json_integer(p->exit_signal) : json_null());
    SET_MEMBERS(o, p, exception, exception_place);
    set_text(o, "failure", run_process_failure(p, failure, sizeof failure));
    SET_MEMBERS(o, p, recording, kernel, lost_events);
}

void draw_json_where(json_t *o, const struct result_report *r, uint32_t process, int device)
{
    set_json(o, "device", json_integer(device));
    set_count(o, "pid", r->processes[process].pid);
    set_bytes(o, "rank", r->processes[process].rank);
}
