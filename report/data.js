// data.js - what the report gathered, unpacked: running sums by call stack, so that any stretch of time costs one subtraction each.

const report = {};

// Calls back with position and value of each entry of a list of pairs: how many points further, value.
function eachPair(pairs, call) {
  let at = 0;
  for (let i = 0; i < pairs.length; i += 2) call(at += pairs[i], pairs[i + 1]);
}

function runningSum(list) {
  let sum = 0;
  return Float64Array.from(list, step => sum += step);
}

// A row of running sums for each key: entry [key * points + point].
function runningSums(rows, points) {
  const sums = new Float64Array(rows.length * points);
  rows.forEach((pairs, row) => {
    const base = row * points;
    eachPair(pairs, (point, value) => { sums[base + point] = value; });
    for (let i = 1; i < points; i++) sums[base + i] += sums[base + i - 1];
  });
  return sums;
}

function liveRows(dimension, points) {
  return dimension.change.map(pairs => runningSums([pairs], points));
}

async function loadReport() {
  const text = atob(document.getElementById('data').textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const data = JSON.parse(await new Response(stream).text());
  const points = data.grid.length;
  Object.assign(report, data, {
    grid: runningSum(data.grid), points,
    total: {t: runningSum(data.total.t), v: Float64Array.from(data.total.v)},
    made: runningSums(data.made, points), freed: runningSums(data.freed, points), kept: runningSums(data.kept, points),
  });
  mergeFrames();
  report.dimensions = Object.keys(data.by).filter(name => name !== 'version');
  for (const name of report.dimensions) data.by[name].live = liveRows(data.by[name], points);
  if (data.ranks) data.ranks.live = liveRows(data.ranks, points);
  for (const series of [...data.gap, ...data.devices, ...data.used]) series.t = runningSum(series.t);
  report.start = report.grid[0];
  report.end = report.grid[points - 1];
  report.keyEnd = data.keys.heap.map(heap => data.processes[data.heaps[heap].process].endPoint);
  report.counted = data.keys.heap.map(heap => data.heaps[heap].counted);
  report.live = sumOfRows(data.by.heap.live, points);
  report.peakPoint = report.live.indexOf(Math.max(...report.live));
}

// Frames of one function are one, whichever of its lines made the call; where these differ, the line is not told.
function mergeFrames() {
  const {text, kind, file, line} = report.frames, known = new Map();
  const first = text.map((name, frame) => {
    const key = kind[frame] + '\0' + name + '\0' + file[frame], same = known.get(key);
    if (same === undefined) known.set(key, frame);
    else if (line[same] !== line[frame]) line[same] = 0;
    return same === undefined ? frame : same;
  });
  report.nodes.frame = report.nodes.frame.map(frame => first[frame]);
  report.keys.site = report.keys.site.map(frame => first[frame]);
}

function sumOfRows(rows, points) {
  const sum = new Float64Array(points);
  for (const row of rows) for (let i = 0; i < points; i++) sum[i] += row[i];
  return sum;
}

// Bytes of each key. mode: live at the point `cursor`; allocated, freed, leaked between the points of `range`; peak: at each process' own peak.
function keyValues(mode, cursor, range, heap) {
  const {points, keys, made, freed, kept} = report;
  const values = new Float64Array(keys.heap.length);
  const sums = {allocated: made, freed, leaked: kept}[mode];
  for (let key = 0; key < values.length; key++) {
    if (heap === null ? !report.counted[key] : report.heaps[keys.heap[key]].name !== heap) continue;
    const base = key * points;
    if (mode === 'peak') values[key] = keys.peak[key];
    else if (mode === 'live') values[key] = cursor < report.keyEnd[key] ? made[base + cursor] - freed[base + cursor] : 0;
    else values[key] = sums[base + range[1]] - (range[0] > 0 ? sums[base + range[0]] : 0);
  }
  return values;
}

// The point of the grid that is nearest to a time.
function nearestPoint(ns) {
  const grid = report.grid;
  let low = 0, high = grid.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (grid[middle] < ns) low = middle + 1;
    else high = middle;
  }
  return low > 0 && ns - grid[low - 1] < grid[low] - ns ? low - 1 : low;
}

// --- numbers in words, as the tables of the page have them ---

function formatSize(bytes, sign) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let size = Math.round(Math.abs(bytes)), unit = 0;
  // Rounding comes before the choice of the unit: 1,048,575 bytes are "1.0 MiB" and not "1024.0 KiB".
  while ((unit ? Math.round(size * 10) / 10 : size) >= 1024 && unit < units.length - 1) { size /= 1024; unit++; }
  const text = (unit ? (Math.round(size * 10) / 10).toFixed(1) : size) + ' ' + units[unit];
  return (bytes < 0 ? '−' : sign && bytes > 0 ? '+' : '') + text;
}

const grouped = new Intl.NumberFormat('en-US');

function formatExact(bytes) {
  return (report.estimated ? '≈ ' : '') + grouped.format(Math.round(bytes)) + (Math.round(bytes) === 1 ? ' byte' : ' bytes');
}

function formatTime(ns) {
  const of = unit => Math.round(ns / unit), twoDigits = n => String(n).padStart(2, '0');
  if (ns < 1e3) return Math.round(ns) + ' ns';
  if (of(100) < 1e4) return (of(100) / 10).toFixed(1) + ' us';
  if (of(1e4) < 1e5) return (of(1e4) / 100).toFixed(2) + ' ms';
  if (of(1e6) < 6e4) return (of(1e6) / 1e3).toFixed(3) + ' s';
  const seconds = of(1e9), minutes = of(60e9);
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ${twoDigits(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${twoDigits(minutes % 60)} min`;
}

function formatShare(part, whole) {
  const percent = whole > 0 ? 100 * part / whole : 0;
  return (percent > 0 && percent < 0.95 ? percent.toFixed(1) : percent.toFixed(0)) + ' %';
}

// --- elements ---

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A name stays a name: isolated from the direction of what stands around it.
function nameElement(name) {
  const bdi = document.createElement('bdi');
  bdi.textContent = name;
  return bdi;
}

// Colours of the style sheet, asked for once in each theme: asking makes the browser work out styles.
const palette = new Map();

function colour(name) {
  let value = palette.get(name);
  if (value === undefined) palette.set(name, value = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
  return value;
}

// The name of a group's colour in the style sheet.
function groupColour(index, count, name) {
  return index === count - 1 && name === 'other' ? 'other' : 'c' + index % 11;
}
