// chart.js - canvases with axes: stacked areas with a cursor and a brush, lines, bars, and the ranks' heat map.

const MARGIN = {left: 74, right: 12, top: 10, bottom: 26};

// A canvas that fills a box, in device pixels; draws again whenever the box or the theme changes. The observer tells the size, so that drawing
// never makes the browser lay out the page; it also draws first, in the frame after the plot was made.
class Plot {
  constructor(box, draw) {
    this.box = box;
    this.draw = draw;
    this.canvas = box.appendChild(document.createElement('canvas'));
    this.context = this.canvas.getContext('2d');
    this.width = this.height = 0;
    Plot.all.push(this);
    new ResizeObserver(() => {
      this.width = box.clientWidth;
      this.height = box.clientHeight;
      this.render();
    }).observe(box);
  }

  render() {
    const {width, height} = this, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = '12px system-ui, sans-serif';
    this.draw(this.context, width, height);
  }
}
Plot.all = [];
Plot.renderAll = () => {
  palette.clear();
  for (const plot of Plot.all) plot.render();
};

// --- axes ---

function sizeTicks(highest, count) {
  let step = 1;
  while (highest / step > count) step *= 2;
  const ticks = [];
  for (let tick = 0; tick <= highest; tick += step) ticks.push(tick);
  return ticks;
}

const HALF_MINUTE = 30e9, HALF_MINUTES = [1, 2, 4, 10, 20, 30, 60, 120, 240, 360, 720, 1440];

// How far ticks are apart: 1, 2 or 5 of a power of ten nanoseconds; from half a minute on what divides hours and days; then days.
function timeStep(length, count) {
  let step = 1;
  for (let i = 0; length / step > count; i++) step *= [2, 2.5, 2][i % 3];
  if (step <= HALF_MINUTE) return step;
  const longer = HALF_MINUTES.find(n => length / (n * HALF_MINUTE) <= count), day = 2880 * HALF_MINUTE;
  return longer ? longer * HALF_MINUTE : Math.ceil(length / count / day) * day;
}

function timeTicks(from, to, count) {
  const step = timeStep(to - from, count), ticks = [];
  for (let tick = Math.ceil((from - report.start) / step) * step + report.start; tick <= to; tick += step) ticks.push(tick);
  return ticks;
}

// Where times and bytes lie in a plot.
function scales(width, height, from, to, highest, left = MARGIN.left) {
  const inner = Math.max(1, width - left - MARGIN.right), tall = height - MARGIN.top - MARGIN.bottom;
  const length = Math.max(1, to - from), top = Math.max(1, highest) * 1.04;
  return {
    x: ns => left + (ns - from) / length * inner, y: bytes => MARGIN.top + tall - bytes / top * tall,
    time: x => from + Math.min(1, Math.max(0, (x - left) / inner)) * length,
    from, to, left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom, highest: top,
  };
}

function drawSizeAxis(c, s) {
  c.textBaseline = 'middle';
  c.textAlign = 'right';
  c.lineWidth = 1;
  for (const tick of sizeTicks(s.highest, (s.bottom - s.top) / 32)) {
    const y = Math.round(s.y(tick)) + 0.5;
    c.strokeStyle = colour('grid');
    c.beginPath();
    c.moveTo(s.left, y);
    c.lineTo(s.right, y);
    c.stroke();
    c.fillStyle = colour('soft');
    c.fillText(formatSize(tick), s.left - 8, y);
  }
}

function drawTimeAxis(c, s, from, to) {
  c.textBaseline = 'top';
  c.textAlign = 'center';
  c.fillStyle = colour('soft');
  const count = Math.max(4.5, (s.right - s.left) / 110), step = timeStep(to - from, count);
  for (const tick of timeTicks(from, to, count)) {
    const x = s.x(tick);
    if (x > s.left + 10 && x < s.right - 25) c.fillText(tickTime(tick - report.start, step, to - report.start), x, s.bottom + 7);
  }
  c.strokeStyle = colour('line');
  c.beginPath();
  c.moveTo(s.left, s.bottom + 0.5);
  c.lineTo(s.right, s.bottom + 0.5);
  c.stroke();
}

// An instant on an axis that ends at `last`, as exact as ticks that are `step` apart need; 1:02:03.5 where hours and seconds, or minutes and parts of a second, are told.
function tickTime(ns, step, last) {
  const digits = unit => step < unit ? Math.ceil(Math.log10(unit / step) - 1e-9) : 0;
  if (ns < 60e9 || last < 120e9) {
    const [unit, name] = ns < 1e3 ? [1, 'ns'] : ns < 1e6 ? [1e3, 'us'] : ns < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
    return +(ns / unit).toFixed(digits(unit)) + ' ' + name;
  }
  if (step >= (last < 3600e9 ? 1e9 : 60e9)) return formatTime(ns);
  const exact = digits(1e9), seconds = +(ns / 1e9).toFixed(exact), minutes = Math.floor(seconds / 60);
  const two = (n, more) => n.toFixed(more).padStart(more ? more + 3 : 2, '0');
  return (minutes < 60 ? minutes : `${Math.floor(minutes / 60)}:${two(minutes % 60, 0)}`) + ':' + two(seconds - minutes * 60, exact);
}

function clipTo(c, s, draw) {
  c.save();
  c.beginPath();
  c.rect(s.left, s.top - 4, s.right - s.left, s.bottom - s.top + 4);
  c.clip();
  draw();
  c.restore();
}

// A level that holds until the next one: in each column of pixels its lowest and highest.
function drawLevels(c, s, times, values, from, to) {
  let at = 0;
  while (at + 1 < times.length && times[at + 1] < from) at++;
  c.beginPath();
  for (let i = at, first = true, y = 0; i < times.length && (i === at || times[i - 1] <= to); i++) {
    if (values[i] === null) continue;
    const x = s.x(times[i]);
    if (first) c.moveTo(x, s.y(values[i]));
    else c.lineTo(x, y);
    y = s.y(values[i]);
    c.lineTo(x, y);
    first = false;
    if (i === times.length - 1) c.lineTo(s.x(Math.max(times[i], report.end)), y);
  }
  c.stroke();
}

const LABEL_HEIGHT = 14, LABEL_ROWS = 4;

// Where the label of a line at x finds room beside those that lie already: to the right of the line or to its left, as near to the top as can be.
function placeLabel(s, x, width, placed) {
  for (let row = 0; row < LABEL_ROWS; row++) {
    for (const left of [x + 4, x - 4 - width]) {
      const free = placed.every(other => other.row !== row || left > other.left + other.width + 6 || left + width + 6 < other.left);
      if (free && left >= s.left && left + width <= s.right) return {left, width, row};
    }
  }
  return null;
}

// Dotted lines at instants, [ns, label, colour]; a label that would lie on another one is left out. What comes first has the first choice.
function drawMarks(c, s, marks) {
  const placed = [], at = ns => Math.round(s.x(ns)) + 0.5;
  c.lineWidth = 1;
  c.setLineDash([3, 3]);
  for (const [ns, , name] of marks) {
    c.strokeStyle = colour(name);
    c.beginPath();
    c.moveTo(at(ns), s.top);
    c.lineTo(at(ns), s.bottom);
    c.stroke();
  }
  c.setLineDash([]);
  c.textBaseline = 'top';
  c.textAlign = 'left';
  for (const [ns, label, name] of marks) {
    const text = label.length > 24 ? label.slice(0, 23) + '…' : label;
    const place = ns >= s.from && ns <= s.to && placeLabel(s, at(ns), c.measureText(text).width, placed);
    if (!place) continue;
    placed.push(place);
    // A refused request is a mark at the peak: the line there must not strike its label through.
    c.globalAlpha = 0.85;
    c.fillStyle = colour('card');
    c.fillRect(place.left - 2, s.top + place.row * LABEL_HEIGHT, place.width + 4, LABEL_HEIGHT);
    c.globalAlpha = 1;
    c.fillStyle = colour(name);
    c.fillText(text, place.left, s.top + place.row * LABEL_HEIGHT + 1);
  }
}

// --- the timeline: what is shown, selected and pointed at ---

const view = {from: 0, to: 0, cursor: 0, range: null, by: 'heap', onPaper: false, changed: () => {}};

// The first and the last of the points that a chart of what is shown needs, the one before and the one behind included.
function shownOf(times) {
  let first = 0, last = times.length - 1;
  while (first + 1 < times.length && times[first + 1] <= view.from) first++;
  while (last > first && times[last - 1] >= view.to) last--;
  return [first, last];
}

function selectedRange() {
  return view.range || [0, report.points - 1];
}

class Timeline {
  constructor(box) {
    this.box = box;
    // Areas are drawn only when they change; the brush lies on a canvas of its own.
    this.areas = new Plot(box, (c, width, height) => this.drawAreas(c, width, height));
    this.brush = new Plot(box, (c, width, height) => this.drawBrush(c, width, height));
    box.addEventListener('pointerdown', event => this.press(event));
    box.addEventListener('pointermove', event => this.drag(event));
    for (const end of ['pointerup', 'pointercancel']) box.addEventListener(end, event => this.release(event));
    box.addEventListener('dblclick', () => view.from > report.start || view.to < report.end ? this.zoomTo(report.start, report.end) : this.zoomIn());
    box.addEventListener('keydown', event => this.key(event));
  }

  scale(width, height) {
    let highest = 0;
    const {t, v} = report.total;
    for (let i = 0; i < t.length; i++) {
      if (t[i] <= view.to && (i + 1 === t.length || t[i + 1] >= view.from) && v[i] > highest) highest = v[i];
    }
    for (let i = 0; i < report.points; i++) {
      if (report.grid[i] >= view.from && report.grid[i] <= view.to && report.live[i] > highest) highest = report.live[i];
    }
    return this.s = scales(width, height, view.from, view.to, highest);
  }

  drawAreas(c, width, height) {
    const s = this.scale(width, height), {grid, points} = report, dimension = report.by[view.by];
    drawSizeAxis(c, s);
    clipTo(c, s, () => {
      const below = new Float64Array(points), x = Array.from(grid, s.x), [first, last] = shownOf(grid);
      dimension.live.forEach((live, group) => {
        c.fillStyle = colour(groupColour(group, dimension.names.length, dimension.names[group]));
        c.beginPath();
        for (let i = first; i <= last; i++) c.lineTo(x[i], s.y(below[i] + Math.max(0, live[i])));
        for (let i = last; i >= first; i--) c.lineTo(x[i], s.y(below[i]));
        c.fill();
        for (let i = first; i <= last; i++) below[i] += Math.max(0, live[i]);
      });
      c.strokeStyle = colour('total');
      c.lineWidth = 1;
      if (report.total.t.length) {
        drawLevels(c, s, report.total.t, report.total.v, view.from, view.to);
      } else { // several processes: known at the same instants as the areas
        c.beginPath();
        for (let i = first; i <= last; i++) c.lineTo(x[i], s.y(below[i]));
        c.stroke();
      }
      const refused = report.ooms.map(([ns, heap]) => [ns, 'out of memory' + (heap ? ': ' + heap : ''), 'warn']);
      drawMarks(c, s, [...refused, ...report.marks.map(([ns, name]) => [ns, name, 'soft'])]);
    });
    drawTimeAxis(c, s, view.from, view.to);
    if (view.onPaper) this.drawBrush(c);
  }

  drawBrush(c) {
    const s = this.s;
    if (!s) return;
    clipTo(c, s, () => {
      if (view.range) {
        const [a, b] = view.range.map(point => s.x(report.grid[point]));
        c.fillStyle = colour('brush');
        c.fillRect(a, s.top - 4, b - a, s.bottom - s.top + 4);
        c.fillStyle = colour('brush-edge');
        for (const x of [a, b]) {
          c.fillRect(x - 1, s.top - 4, 2, s.bottom - s.top + 4);
          c.fillRect(x - 3, (s.top + s.bottom) / 2 - 12, 6, 24);
        }
      }
      const x = s.x(report.grid[view.cursor]), y = s.y(report.live[view.cursor]);
      c.strokeStyle = colour('ink');
      c.lineWidth = 1.5;
      c.beginPath();
      c.moveTo(x, s.top - 4);
      c.lineTo(x, s.bottom);
      c.stroke();
      c.fillStyle = colour('card');
      c.beginPath();
      c.arc(x, y, 4, 0, 7);
      c.fill();
      c.stroke();
    });
  }

  render() {
    this.areas.render();
    this.brush.render();
  }

  // --- pointer ---

  pointAt(event) {
    return nearestPoint(this.s.time(event.clientX - this.box.getBoundingClientRect().left));
  }

  press(event) {
    if (event.button || !this.s) return;
    const x = event.clientX - this.box.getBoundingClientRect().left, point = this.pointAt(event);
    this.held = {x, from: point, kind: 'new'};
    if (view.range) {
      const [a, b] = view.range, edges = view.range.map(p => Math.abs(this.s.x(report.grid[p]) - x));
      if (Math.min(...edges) < 7) Object.assign(this.held, {kind: 'edge', from: edges[0] < edges[1] ? b : a});
      else if (point > a && point < b) Object.assign(this.held, {kind: 'move', range: [a, b]});
    }
    this.box.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const held = this.held;
    if (!held) return;
    const x = event.clientX - this.box.getBoundingClientRect().left, point = this.pointAt(event);
    if (!held.moved && Math.abs(x - held.x) < 4) return;
    held.moved = true;
    if (held.kind === 'move') {
      const shift = Math.min(report.points - 1 - held.range[1], Math.max(-held.range[0], point - held.from));
      this.select(held.range[0] + shift, held.range[1] + shift);
    } else {
      this.select(held.from, point);
    }
  }

  release(event) {
    if (this.held && !this.held.moved) {
      view.cursor = this.pointAt(event);
      this.changed();
    }
    this.held = null;
  }

  select(a, b) {
    view.range = a === b ? null : [Math.min(a, b), Math.max(a, b)];
    this.changed();
  }

  changed() {
    view.changed();
  }

  // --- keyboard and buttons ---

  moveCursor(point, selecting) {
    const from = view.cursor;
    view.cursor = Math.min(report.points - 1, Math.max(0, point));
    if (selecting) {
      if (!view.range || !view.range.includes(from)) this.anchor = from;
      view.range = this.anchor === view.cursor ? null : [Math.min(this.anchor, view.cursor), Math.max(this.anchor, view.cursor)];
    }
    const ns = report.grid[view.cursor];
    if (ns < view.from || ns > view.to) this.zoomTo(...[view.from, view.to].map(t => t + ns - (view.from + view.to) / 2));
    this.changed();
  }

  key(event) {
    const step = event.ctrlKey || event.metaKey ? 10 : 1;
    const moves = {ArrowLeft: view.cursor - step, ArrowRight: view.cursor + step, Home: 0, End: report.points - 1};
    if (event.key in moves) this.moveCursor(moves[event.key], event.shiftKey);
    else if (event.key === 'Escape') this.select(0, 0);
    else if (event.key === '+' || event.key === '=' || event.key === 'Enter') this.zoomIn();
    else if (event.key === '-') this.zoomTo(report.start, report.end);
    else return;
    event.preventDefault();
  }

  zoomIn() {
    if (view.range) return this.zoomTo(...view.range.map(point => report.grid[point]));
    const half = (view.to - view.from) / 4, middle = report.grid[view.cursor];
    return this.zoomTo(middle - half, middle + half);
  }

  zoomTo(from, to) {
    const least = Math.max(1, (report.end - report.start) / 1e6);
    if (to - from < least) to = from + least;
    if (from < report.start) [from, to] = [report.start, to + report.start - from];
    if (to > report.end) [from, to] = [Math.max(report.start, from - (to - report.end)), report.end];
    Object.assign(view, {from, to});
    this.render();
    view.changed();
  }
}

// --- simpler plots ---

// series: [{name, colour, t, v, fill}] over the whole run, one over the other where `stackedTop` says how high they come.
function drawSeries(c, width, height, series, options) {
  const {stackedTop, marks} = options;
  const top = stackedTop ?? Math.max(0, ...series.map(one => one.v.reduce((a, b) => Math.max(a, b || 0), 0)));
  const s = scales(width, height, report.start, report.end, top);
  drawSizeAxis(c, s);
  clipTo(c, s, () => {
    if (stackedTop !== undefined) {
      let below = new Float64Array(series[0].t.length);
      for (const one of series) {
        const above = below.map((base, i) => base + (one.v[i] || 0));
        c.fillStyle = colour(one.colour);
        c.beginPath();
        one.t.forEach((t, i) => c.lineTo(s.x(t), s.y(above[i])));
        for (let i = one.t.length - 1; i >= 0; i--) c.lineTo(s.x(one.t[i]), s.y(below[i]));
        c.fill();
        below = above;
      }
    } else {
      for (const one of series) {
        c.strokeStyle = colour(one.colour);
        c.lineWidth = 2;
        c.setLineDash(one.dash || []);
        drawLevels(c, s, one.t, one.v, report.start, report.end);
        c.setLineDash([]);
      }
    }
    drawMarks(c, s, (marks || []).map(([ns, label]) => [ns, label, 'warn']));
  });
  drawTimeAxis(c, s, report.start, report.end);
}

function drawSteps(c, width, height, steps) {
  const highest = Math.max(1, ...steps.map(step => Math.max(step[8], step[7], step[9])));
  const s = scales(width, height, 0, steps.length, highest);
  drawSizeAxis(c, s);
  const wide = Math.max(1, (s.right - s.left) / steps.length), gap = wide > 6 ? 1 : 0;
  steps.forEach((step, i) => {
    const x = s.x(i) + gap, bar = (value, name, from, part) => {
      c.fillStyle = colour(name);
      c.fillRect(x + from * (wide - 2 * gap), s.y(value), Math.max(1, part * (wide - 2 * gap)), s.bottom - s.y(value));
    };
    bar(step[8], 'c4', 0, 1);
    bar(step[7], 'c0', 0, 0.5);
    bar(Math.max(0, step[9]), 'c1', 0.5, 0.5);
  });
  c.textBaseline = 'top';
  c.textAlign = 'center';
  c.fillStyle = colour('soft');
  const widest = Math.max(...steps.map(step => c.measureText(step[1]).width));
  const every = Math.ceil(steps.length * Math.max(44, widest + 10) / (s.right - s.left));
  steps.forEach((step, i) => i % every || c.fillText(step[1], s.x(i + 0.5), s.bottom + 7));
}

// A name without its middle, where there is no room for all of it: processes of one program differ in the number at the end.
function fitted(c, name, room) {
  const letters = Array.from(name);
  let kept = letters.length, text = name;
  while (kept > 2 && c.measureText(text).width > room) {
    kept--;
    text = letters.slice(0, kept >> 2).join('') + '…' + letters.slice((kept >> 2) - kept).join('');
  }
  return text;
}

// A row for each rank, darker where more is live. One hue, so that nobody needs to tell colours apart.
function drawRanks(c, width, height, rows, highest) {
  const widest = Math.max(...rows.map(row => c.measureText(row.name).width)), left = Math.max(MARGIN.left, Math.min(widest + 12, width / 4));
  const s = scales(width, height, report.start, report.end, highest, left), tall = (s.bottom - s.top) / rows.length;
  const dark = isDark();
  rows.forEach((row, index) => {
    const y = s.top + index * tall;
    for (let i = 0; i + 1 < report.points; i++) {
      const share = Math.max(0, Math.max(row.live[i], row.live[i + 1])) / Math.max(1, highest);
      const x = s.x(report.grid[i]);
      c.fillStyle = `hsl(202 ${60 + 30 * share}% ${dark ? 12 + 62 * share : 97 - 67 * share}%)`;
      c.fillRect(x, y, s.x(report.grid[i + 1]) - x + 0.6, Math.max(1, tall - (tall > 4 ? 1 : 0)));
    }
    const every = Math.ceil(12 / tall);
    if (index % every) return;
    c.textBaseline = 'middle';
    c.textAlign = 'right';
    c.fillStyle = colour('soft');
    c.fillText(fitted(c, row.name, s.left - 8), s.left - 8, y + tall / 2);
  });
  drawTimeAxis(c, s, report.start, report.end);
  return s;
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

function fillLegend(box, items) {
  box.replaceChildren(...items.map(([name, hue, value]) => {
    const swatch = element('i', {class: 'sw'});
    swatch.style.background = `var(--${hue})`;
    const item = element('span', {}, swatch, nameElement(name));
    item.title = name;
    if (value !== undefined) item.append(element('em', {}, value));
    return item;
  }));
}
