/* What a report's page knows of its run: decodes the data that gpuspy wrote into it. Plain JavaScript; no
 * document, no library.
 *
 *   const m = gpuspyModel(JSON.parse(text));
 *
 *   m.report      what `gpuspy report --json` prints; parts of it are shared: do not change it
 *   m.source, m.gpuspy, m.resolution.text, m.categories = [word]; m.causes = {word: title}; m.evidence = {key: label}
 *   m.series      [{ index, process, pid, rank, device, layer, label, n, peak,
 *                    start, time: when the bucket begins, and when it held most; seconds
 *                    high, low: the most and the least live in it; bytes
 *                    lines: [{ index, stack, category, label, site, merged, place }] }]
 *                 merged: so many call paths; place: all of this line of code, null; stack: the calls they share
 *                 If a bucket has no event of the series, `high` stays what it was before.
 *   m.at(series, i)        [{ line, bytes, count }] live at time[i], largest first; sums to high[i]
 *   m.index(series, t)     the bucket whose moment is the last one not after t seconds; 0 before all
 *   m.stacked(series, "category" | "site" | "line", top)
 *                          { keys: [text], values: [Float64Array(n)], others: the last is all the rest }; sums to
 *                          high
 *   m.singles(series, i)   [{ line, stack, bytes, allocated, lived }]: the largest allocations of the larger lines that
 *                          are live at time[i]; seconds: allocated null unknown, lived null until the end
 *   m.frames(stack)        [{ function, file, line, native, module }], outermost first
 *   m.site(stack)          "train.py:12 in step"
 *   m.tree(list, { native })  of what m.at returns: { name, value, count, children, frame }
 *   m.difference(a, b)     of two such lists: [{ line, bytes, count }], b - a, largest change first
 *   m.events      [{ time, end, kind: "oom" | "retry" | "flush" | "sync" | "copy", process, device, text,
 *                    count, bytes, seconds, … }] in order of time
 *   m.calls       the waits and copies among them, by place: [{ kind: "sync" | "copy", process, device, what,
 *                 pattern, site, stack, others, count, seconds, bytes,
 *                 points: [{ time, end, count, seconds, bytes }] }]
 *   m.marks       [{ name, start, end, process, thread, kind, domain, of }]; end null: it never came;
 *                 of: each of so many of that name is there
 *   m.steps       [{ process, by, source, n, stride, starts }], with the last one's end
 *   m.maps        [{ process, device, at: "peak" | "oom", index, time, note, tensors,
 *                    segments: [{ address, bytes, owner: "torch" | "direct" | null, pool, private, stream,
 *                    expandable, stack, blocks: [{ offset, bytes, stack, category, pending, merged,
 *                    allocated, lived }] }] }]     seconds, of the largest; lived null: to the end
 *                 index: in m.report.peak or .oom; stack of a segment: the call that allocated it from CUDA
 */
"use strict";
function gpuspyModel(data) {
  const digits = new Int8Array(128).fill(-1);
  for (let i = 0; i < 64; i++) {
    digits["ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".charCodeAt(i)] = i;
  }

  /* Signed numbers, five bits a character, lowest first; the sign is the lowest bit of all. */
  function numbers(text) {
    let n = 0;
    for (let i = 0; i < text.length; i++) {
      n += digits[text.charCodeAt(i)] < 32;
    }
    const out = new Float64Array(n);
    let value = 0, scale = 1, at = 0;
    for (let i = 0; i < text.length; i++) {
      const digit = digits[text.charCodeAt(i)];
      value += (digit & 31) * scale;
      scale *= 32;
      if (digit < 32) {
        out[at++] = value % 2 ? -(value - 1) / 2 : value / 2;
        value = 0;
        scale = 1;
      }
    }
    return out;
  }

  /* Each value is stored as its difference from the previous one. */
  function sums(text, unit) {
    const out = numbers(text);
    for (let i = 1; i < out.length; i++) {
      out[i] += out[i - 1];
    }
    for (let i = 0; i < out.length; i++) {
      out[i] *= unit;
    }
    return out;
  }

  /* Repeated parts of the report are stored once. */
  function restore(value) {
    if (Array.isArray(value)) {
      for (let i = 0; i < value.length; i++) {
        value[i] = restore(value[i]);
      }
    } else if (value && typeof value === "object") {
      if (typeof value.$ === "number") {
        return data.shared[value.$];
      }
      for (const key in value) {
        value[key] = restore(value[key]);
      }
    }
    return value;
  }
  for (let i = 0; i < data.shared.length; i++) { /* each refers only to earlier ones */
    data.shared[i] = restore(data.shared[i]);
  }

  const m = {
    report: restore(data.report), source: data.source, gpuspy: data.gpuspy,
    resolution: data.resolution, categories: data.categories, causes: data.causes, evidence: data.evidence,
  };

  // ---- stacks
  const strings = data.strings;
  const text = (n) => (n > 0 ? strings[n - 1] : null);
  const frames = (function () {
    const f = data.frames, native = numbers(f.native), name = numbers(f.function), file = numbers(f.file),
      line = numbers(f.line), module = numbers(f.module), list = [];
    for (let i = 0; i < native.length; i++) {
      list.push({ function: text(name[i]), file: text(file[i]), line: line[i] || null,
        native: native[i] === 1, module: text(module[i]) });
    }
    return list;
  })();
  const parents = numbers(data.stacks.parent), frameOf = numbers(data.stacks.frame),
    siteOf = new Map();
  (function () {
    const where = sums(data.stacks.sited, 1), what = numbers(data.stacks.site);
    for (let i = 0; i < where.length; i++) {
      siteOf.set(where[i], text(what[i]));
    }
  })();
  const framesOf = new Map();
  const none = [];

  m.frames = function (stack) {
    if (!(stack >= 0 && stack < parents.length)) {
      return none;
    }
    let list = framesOf.get(stack);
    if (!list) {
      list = [];
      for (let s = stack; s >= 0; s = parents[s] ? s - parents[s] : -1) {
        list.push(frames[frameOf[s]]);
      }
      list.reverse();
      framesOf.set(stack, list);
    }
    return list;
  };

  const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);
  m.frameText = function (f) {
    const where = f.file ? baseName(f.file) + (f.line ? ":" + f.line : "")
      : f.module ? baseName(f.module) : "";
    return where && f.function ? (f.native ? f.function + " (" + where + ")" : where + " in " + f.function)
      : where || f.function || "unknown";
  };

  m.site = function (stack) {
    const known = siteOf.get(stack);
    if (known !== undefined) {
      return known;
    }
    const list = m.frames(stack);
    const python = list.filter((f) => !f.native);
    const at = python.length ? python : list;
    return at.length ? m.frameText(at[at.length - 1]) : "unknown call site";
  };

  // ---- series
  function lineOf(s, index, stack, category, merged, place) {
    const word = m.categories[category];
    const label = place ? place
      : stack >= 0 ? m.site(stack)
      : merged ? merged + (merged === 1 ? " smaller call site" : " smaller call sites") : "unknown call site";
    return { index: index, series: s.index, stack: stack, category: word, label: label, site: label,
      merged: merged, place: place };
  }

  function seriesOf(d, index) {
    const s = { index: index, process: d.process, pid: d.pid, rank: d.rank, device: d.device, layer: d.layer,
      label: d.label, peak: d.peak, time: sums(d.time, 1e-9), start: sums(d.start, 1e-9),
      high: sums(d.high, d.unit), low: numbers(d.low), lines: [], ns: sums(d.time, 1) };
    s.n = s.time.length;
    for (let i = 0; i < s.n; i++) {
      s.low[i] = s.high[i] - s.low[i] * d.unit;
    }
    const stack = numbers(d.stack), category = numbers(d.category), merged = numbers(d.merged),
      site = numbers(d.site);
    for (let i = 0; i < stack.length; i++) {
      s.lines.push(lineOf(s, i, stack[i], category[i], merged[i], text(site[i])));
    }
    return s;
  }
  m.series = data.series.map(seriesOf);

  /* changes: for each bucket, how many lines differ from the bucket before; for each of these, its number (as the
   * difference from the previous one), its bytes and its blocks (as differences). Decoded on first use. */
  const decoded = [];
  function changesOf(s) {
    let c = decoded[s.index];
    if (!c) {
      const d = data.series[s.index], all = numbers(d.changes), first = new Uint32Array(s.n + 1);
      let at = 0;
      for (let i = 0; i < s.n; i++) {
        first[i] = at;
        let line = 0;
        const end = at + 1 + 3 * all[at];
        for (at++; at < end; at += 3) {
          line += all[at];
          all[at] = line;
          all[at + 1] *= d.unit;
        }
      }
      first[s.n] = at;
      c = decoded[s.index] = { all: all, first: first, marks: [], exact: exactOf(d) };
    }
    return c;
  }

  /* At the peak, the categories are those of the report, which a stream of events does not have: the lines of that
   * bucket are stored in full. */
  function exactOf(d) {
    if (!d.exact) {
      return null;
    }
    const all = numbers(d.exact), list = new Map();
    let line = 0;
    for (let i = 0; i < all.length; i += 3) {
      line += all[i];
      list.set(line, [all[i + 1] * d.unit, all[i + 2]]);
    }
    return list;
  }

  function apply(c, i, bytes, counts) {
    for (let at = c.first[i] + 1; at < c.first[i + 1]; at += 3) {
      bytes[c.all[at]] += c.all[at + 1];
      counts[c.all[at]] += c.all[at + 2];
    }
  }

  const EVERY = 64; /* a state is stored every so many buckets */
  function stateAt(s, i) {
    const c = changesOf(s), n = s.lines.length;
    let from = Math.floor(i / EVERY);
    while (from > 0 && !c.marks[from]) {
      from--;
    }
    let bytes = from ? c.marks[from][0].slice() : new Float64Array(n);
    let counts = from ? c.marks[from][1].slice() : new Float64Array(n);
    for (let k = from ? from * EVERY + 1 : 0; k <= i; k++) {
      apply(c, k, bytes, counts);
      if (k % EVERY === 0 && k && !c.marks[k / EVERY]) {
        c.marks[k / EVERY] = [bytes.slice(), counts.slice()];
      }
    }
    return [bytes, counts];
  }

  const seriesFrom = (s) => (typeof s === "number" ? m.series[s] : s);

  m.at = function (series, i) {
    const s = seriesFrom(series), list = [];
    if (!(i >= 0 && i < s.n)) {
      return list;
    }
    const c = changesOf(s);
    if (c.exact && i === s.peak) {
      c.exact.forEach((v, line) => list.push({ line: s.lines[line], bytes: v[0], count: v[1] }));
    } else {
      const [bytes, counts] = stateAt(s, i);
      for (let k = 0; k < bytes.length; k++) {
        if (bytes[k] || counts[k]) {
          list.push({ line: s.lines[k], bytes: bytes[k], count: counts[k] });
        }
      }
    }
    return list.sort((a, b) => b.bytes - a.bytes || a.line.index - b.line.index);
  };

  m.index = function (series, t) {
    const s = seriesFrom(series);
    let low = 0, high = s.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (s.time[middle] <= t) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low ? low - 1 : 0;
  };

  const kept = [];
  function singlesOf(s) {
    if (!kept[s.index]) {
      const d = data.series[s.index].singles, groups = numbers(d.line), at = numbers(d.at), lived = numbers(d.lived),
        bytes = numbers(d.bytes), stack = numbers(d.stack), list = [];
      let number = 0, i = 0;
      for (let g = 0; g < groups.length; g += 2) {
        number += groups[g];
        const line = s.lines[number];
        let from = 0;
        for (const end = i + groups[g + 1]; i < end; i++) {
          from += at[i];
          list.push({ line: line, stack: line.stack + stack[i], bytes: bytes[i] * d.unit,
            allocated: from < 0 ? null : from * d.ns * 1e-9,
            lived: lived[i] < 0 ? null : lived[i] * d.ns * 1e-9,
            from: Math.max(0, from) * d.ns, to: lived[i] < 0 ? Infinity : (Math.max(0, from) + lived[i]) * d.ns });
        }
      }
      kept[s.index] = list;
    }
    return kept[s.index];
  }

  m.singles = function (series, i) {
    const s = seriesFrom(series), ns = s.ns[i];
    return singlesOf(s).filter((b) => b.from <= ns && ns < b.to).sort((a, b) => b.bytes - a.bytes);
  };

  /* Only at the peak are lines distinguished that are too small for a line of their own. They always belong to "others",
   * or the stack would jump there. */
  const SMALL = "\0";
  const keyOf = { category: (l) => l.category, site: (l) => (l.merged && l.stack < 0 && !l.place ? SMALL : l.site),
    line: (l) => l.index };

  m.stacked = function (series, by, top) {
    const s = seriesFrom(series), c = changesOf(s), n = s.n, of = new Int32Array(s.lines.length);
    const numberOf = new Map(), keys = [], sizes = [];
    s.lines.forEach((l, i) => {
      const key = keyOf[by](l);
      if (!numberOf.has(key)) {
        numberOf.set(key, keys.length);
        keys.push(by === "line" ? l.label : key);
        sizes.push(0);
      }
      of[i] = numberOf.get(key);
    });
    /* the maximum of each, then those that are shown */
    const now = new Float64Array(keys.length);
    const each = function (tell) {
      now.fill(0);
      for (let i = 0; i < n; i++) {
        for (let at = c.first[i] + 1; at < c.first[i + 1]; at += 3) {
          now[of[c.all[at]]] += c.all[at + 1];
        }
        if (c.exact && i === s.peak) {
          const kept = now.slice();
          now.fill(0);
          c.exact.forEach((v, line) => { now[of[line]] += v[0]; });
          tell(i);
          now.set(kept);
        } else {
          tell(i);
        }
      }
    };
    each(() => {
      for (let k = 0; k < now.length; k++) {
        if (now[k] > sizes[k]) {
          sizes[k] = now[k];
        }
      }
    });
    const order = keys.map((k, i) => i).sort((a, b) => sizes[b] - sizes[a] || a - b);
    const shown = order.filter((k) => keys[k] !== SMALL).slice(0, top || order.length).filter((k) => sizes[k] > 0);
    const place = new Int32Array(keys.length).fill(-1);
    shown.forEach((k, i) => { place[k] = i; });
    const others = order.some((k) => place[k] < 0 && sizes[k] > 0);
    const values = shown.map(() => new Float64Array(n));
    if (others) {
      values.push(new Float64Array(n));
    }
    each((i) => {
      for (let k = 0; k < now.length; k++) {
        if (place[k] >= 0) {
          values[place[k]][i] = now[k];
        } else if (now[k]) {
          values[shown.length][i] += now[k];
        }
      }
    });
    return { keys: shown.map((k) => keys[k]).concat(others ? ["others"] : []), values: values, others: others };
  };

  m.difference = function (a, b) {
    const all = new Map();
    for (const [list, sign] of [[a, -1], [b, 1]]) {
      for (const e of list) {
        const key = e.line.series + " " + e.line.index;
        const d = all.get(key) || { line: e.line, bytes: 0, count: 0 };
        d.bytes += sign * e.bytes;
        d.count += sign * e.count;
        all.set(key, d);
      }
    }
    return Array.from(all.values()).filter((d) => d.bytes || d.count)
      .sort((x, y) => Math.abs(y.bytes) - Math.abs(x.bytes));
  };

  m.tree = function (list, options) {
    const native = options && options.native;
    const root = { name: "all", value: 0, count: 0, children: [], frame: null, by: new Map() };
    for (const e of list) {
      let path = m.frames(e.line.stack);
      const python = path.filter((f) => !f.native);
      if (!native && python.length) {
        path = python;
      }
      if (e.line.place) { /* several call paths: the calls that they share, then the line of code */
        path = path.concat([{ function: e.line.place + " (" + e.line.merged + (e.line.merged === 1 ? " call path)" : " call paths)"),
          file: null, line: null, native: false, module: null }]);
      } else if (!path.length) {
        path = [{ function: e.line.label, file: null, line: null, native: false, module: null }];
      }
      let node = root;
      node.value += e.bytes;
      node.count += e.count;
      for (const f of path) {
        const name = m.frameText(f);
        let child = node.by.get(name);
        if (!child) {
          child = { name: name, value: 0, count: 0, children: [], frame: f, by: new Map() };
          node.by.set(name, child);
          node.children.push(child);
        }
        child.value += e.bytes;
        child.count += e.count;
        node = child;
      }
    }
    const nodes = [root];
    while (nodes.length) {
      const node = nodes.pop();
      delete node.by;
      node.children.sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
      for (const child of node.children) {
        nodes.push(child);
      }
    }
    return root;
  };

  // ---- events, marks, steps, maps
  m.calls = data.calls.map(function (d) {
    const first = sums(d.first, 1e-9), length = numbers(d.length), counts = numbers(d.counts),
      blocked = numbers(d.blocked), sizes = numbers(d.sizes);
    const c = { kind: d.kind, process: d.process, device: d.device, what: d.what, pattern: d.pattern,
      host_memory: d.host_memory, others: d.others, stack: d.stack,
      site: d.others ? "other call sites" : text(d.site) || "unknown call site",
      count: d.count, seconds: d.ns / 1e9, bytes: d.bytes, points: [] };
    for (let i = 0; i < first.length; i++) {
      c.points.push({ time: first[i], end: first[i] + length[i] / 1e9, count: counts[i],
        seconds: blocked[i] / 1e9, bytes: sizes[i] });
    }
    return c;
  });
  m.directions = { h2d: "host to GPU", d2h: "GPU to host", d2d: "within GPU", p2p: "GPU to GPU", h2h: "host to host" };
  const callText = {
    sync: (c) => (c.pattern || "wait (" + c.what + ")") + " at " + c.site,
    copy: (c) => "copy " + (m.directions[c.what] || c.what) + " at " + c.site,
  };
  const eventText = {
    oom: (e) => e.text || "out of memory",
    retry: () => "an allocation failed and was tried again",
    flush: (e) => (e.what === "empty_cache" ? "the cache was emptied" : "cached memory was freed") +
      (e.count > 1 ? " " + e.count + " times" : ""),
  };
  m.events = data.events.map((e) => Object.assign({ end: e.time, count: 1 }, e, { text: eventText[e.kind](e) }));
  for (const c of m.calls) {
    for (const p of c.points) {
      m.events.push({ time: p.time, end: p.end, kind: c.kind, process: c.process, device: c.device,
        text: callText[c.kind](c) + (p.count > 1 ? ", " + p.count + " times" : ""), site: c.site, stack: c.stack,
        count: p.count, seconds: p.seconds, bytes: p.bytes });
    }
  }
  m.events.sort((a, b) => a.time - b.time);
  m.steps = data.steps.map((s) => Object.assign({}, s, { starts: sums(s.starts, 1e-9) }));
  m.marks = (function () {
    const d = data.marks, name = numbers(d.name), start = sums(d.start, 1), length = numbers(d.length),
      process = numbers(d.process), thread = numbers(d.thread), kind = numbers(d.kind),
      domain = numbers(d.domain), of = numbers(d.of), list = [];
    for (let i = 0; i < name.length; i++) {
      list.push({ name: text(name[i]) || "", start: start[i] / 1e9, process: process[i], thread: thread[i],
        kind: text(kind[i]), domain: text(domain[i]), of: of[i],
        end: length[i] < 0 ? null : (start[i] + length[i]) / 1e9 });
    }
    return list;
  })();
  m.maps = data.maps.map(function (d) {
    const map = Object.assign({}, d, { segments: [] }), all = numbers(d.blocks), g = d.segments;
    const address = sums(g.address, 1), bytes = numbers(g.bytes), flags = numbers(g.flags),
      pool = numbers(g.pool), stream = numbers(g.stream), stack = numbers(g.stack), count = numbers(g.blocks);
    const times = numbers(d.times), timed = new Map();
    for (let i = 0, number = 0; i < times.length; i += 3) {
      number += times[i];
      timed.set(number, [times[i + 1] / 1e6, times[i + 2] < 0 ? null : times[i + 2] / 1e6]);
    }
    let at = 0;
    for (let k = 0; k < address.length; k++) {
      const segment = { address: address[k], bytes: bytes[k], owner: [null, "torch", "direct"][flags[k] & 3],
        pool: text(pool[k]), private: (flags[k] & 4) > 0, expandable: (flags[k] & 8) > 0,
        stream: flags[k] & 16 ? stream[k] : null, stack: stack[k], blocks: [] };
      let offset = 0;
      for (let i = 0; i < count[k]; i++, at += 5) {
        offset += all[at] * d.unit; /* the hole before it */
        const size = all[at + 1] * d.unit, when = timed.get(at / 5) || [null, null];
        segment.blocks.push({ offset: offset, bytes: size, stack: all[at + 2],
          category: m.categories[all[at + 3] >> 1], pending: (all[at + 3] & 1) === 1, merged: all[at + 4],
          allocated: when[0], lived: when[1] });
        offset += size;
      }
      map.segments.push(segment);
    }
    delete map.blocks;
    delete map.times;
    return map;
  });
  return m;
}
if (typeof module !== "undefined") {
  module.exports = gpuspyModel;
}
