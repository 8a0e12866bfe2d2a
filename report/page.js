// page.js - wires the page together: what is selected in the chart decides what the flame graph and its table show.

const MODES = [['live', 'Live at the cursor'], ['allocated', 'Allocated'], ['freed', 'Freed'], ['leaked', 'Leaked'], ['peak', 'At the peaks']];
const byId = id => document.getElementById(id);
let timeline, flame, mode = 'live', heap = null;

// --- light and dark ---

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  Plot.renderAll();
}

function toggleTheme() {
  setTheme(isDark() ? 'light' : 'dark');
  try { localStorage.setItem('tidemark-theme', document.documentElement.dataset.theme); } catch { /* pages on disk may keep nothing */ }
}

function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem('tidemark-theme'); } catch { /* as above */ }
  byId('theme').textContent = (kept ? kept === 'dark' : isDark()) ? 'Light' : 'Dark';
  if (kept) document.documentElement.dataset.theme = kept;
  byId('theme').addEventListener('click', toggleTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    byId('theme').textContent = isDark() ? 'Light' : 'Dark';
    Plot.renderAll();
  });
  let before;
  // On paper the cursor and the brush are part of the chart's own canvas, for what lies over a canvas may hide it there.
  addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme;
    view.onPaper = true;
    setTheme('light');
  });
  addEventListener('afterprint', () => {
    view.onPaper = false;
    if (before) setTheme(before);
    else {
      delete document.documentElement.dataset.theme;
      byId('theme').textContent = isDark() ? 'Light' : 'Dark';
      Plot.renderAll();
    }
  });
}

// --- what is shown ---

function segments(box, choices, chosen, choose) {
  box.replaceChildren(...choices.map(([value, label]) => {
    const button = element('button', {type: 'button', 'data-value': value, 'aria-pressed': String(value === chosen)}, label);
    button.addEventListener('click', () => choose(value));
    return button;
  }));
}

function press(box, value) {
  for (const button of box.children) button.setAttribute('aria-pressed', String(button.dataset.value === value));
}

function tellReadout() {
  const [a, b] = selectedRange(), {grid, live} = report, parts = [];
  parts.push('At ', element('b', {}, formatTime(grid[view.cursor] - report.start)), ': ', element('b', {title: formatExact(live[view.cursor])}, formatSize(live[view.cursor])), ' live');
  if (view.cursor === report.peakPoint) parts.push(' (the peak)');
  if (view.range) {
    parts.push(' · selected ', element('b', {}, `${formatTime(grid[a] - report.start)} – ${formatTime(grid[b] - report.start)}`), ', ',
      element('b', {title: formatExact(live[b] - live[a])}, formatSize(live[b] - live[a], true)));
  } else {
    parts.push(' · nothing selected: the whole run');
  }
  byId('readout').replaceChildren(...parts);
  byId('clear').disabled = !view.range;
  byId('unzoom').disabled = view.from === report.start && view.to === report.end;
}

function tellLegend() {
  const dimension = report.by[view.by], count = dimension.names.length;
  const items = dimension.names.map((name, i) => [name, groupColour(i, count, name), formatSize(dimension.live[i][view.cursor])]);
  fillLegend(byId('legend'), items.filter((item, i) => item[0] !== 'other' || i < count - 1 || Math.max(...dimension.live[i]) > 0));
}

function tellFlame() {
  const all = flame.tree.value[0], [a, b] = selectedRange(), {grid} = report, found = flame.hits ? flame.found() : 0;
  const when = {
    live: `live at ${formatTime(grid[view.cursor] - report.start)}`, peak: 'live when each process had its peak',
    allocated: 'allocated', freed: 'given back, by the call stacks that had allocated it', leaked: 'allocated and still live at exit',
  }[mode] + (mode === 'live' || mode === 'peak' ? '' : view.range ? ` between ${formatTime(grid[a] - report.start)} and ${formatTime(grid[b] - report.start)}` : ' in the whole run');
  byId('flame-total').replaceChildren(element('b', {title: formatExact(all), 'data-v': String(all)}, formatSize(all)), ' ', when,
    ...(flame.hits ? [' · ', element('b', {'data-v': String(found)}, `${formatSize(found)} (${formatShare(found, all)})`), ' in functions that match'] : []));
}

function showFlame() {
  const values = keyValues(mode, view.cursor, selectedRange(), heap);
  flame.show(values);
  // The table may come a moment later: the picture answers first.
  clearTimeout(showFlame.later);
  showFlame.later = setTimeout(() => fillFunctions(byId('function-table'), values, byId('search').value), 60);
}

// At most once a frame, however fast the pointer moves.
function changed() {
  if (changed.waits) return;
  changed.waits = true;
  requestAnimationFrame(() => {
    changed.waits = false;
    timeline.brush.render();
    tellReadout();
    tellLegend();
    showFlame();
  });
}

function setMode(value) {
  mode = value;
  press(byId('flame-mode'), value);
  showFlame();
}

function setBy(value) {
  view.by = value;
  press(byId('stack-by'), value);
  timeline.render();
  tellLegend();
}

function setInverted(inverted) {
  byId('invert').setAttribute('aria-pressed', String(inverted));
  flame.setInverted(inverted);
}

function toPeak() {
  view.cursor = report.peakPoint;
  timeline.moveCursor(view.cursor, false);
}

// --- parts ---

function startTimeline() {
  Object.assign(view, {from: report.start, to: report.end, cursor: report.peakPoint, changed});
  timeline = new Timeline(byId('timeline'));
  segments(byId('stack-by'), report.dimensions.map(name => [name, name[0].toUpperCase() + name.slice(1)]), view.by, setBy);
  byId('to-peak').addEventListener('click', toPeak);
  byId('zoom').addEventListener('click', () => timeline.zoomIn());
  byId('unzoom').addEventListener('click', () => timeline.zoomTo(report.start, report.end));
  byId('clear').addEventListener('click', () => timeline.select(0, 0));
}

function startFlame() {
  flame = new Flame(byId('flame-box'), tellFlame);
  segments(byId('flame-mode'), MODES, mode, setMode);
  const names = [...new Set(report.heaps.map(one => one.name))], counted = [...new Set(report.heaps.filter(one => one.counted).map(one => one.name))];
  byId('flame-heap').append(...[[null, counted.length === 1 ? counted[0] : 'All root heaps'], ...names.filter(name => counted.length > 1 || name !== counted[0]).map(name => [name, name])]
    .map(([value, label]) => { const option = element('option', {}); option.textContent = label; option.heap = value; return option; }));
  byId('flame-heap').addEventListener('change', event => { heap = event.target.selectedOptions[0].heap; showFlame(); });
  byId('invert').addEventListener('click', () => setInverted(!flame.inverted));
  byId('flame-reset').addEventListener('click', () => flame.zoom(0));
  byId('search').addEventListener('input', event => { flame.search(event.target.value); flame.tell(); showFlame(); });
}

function startGap() {
  const section = byId('gap'), choose = byId('gap-process');
  if (!report.gap.length) {
    byId('gap-chart').replaceWith(element('p', {class: 'none'}, 'Resident memory was not sampled.'));
    return;
  }
  const byProcess = new Map(report.processes.map(one => [one.id, one]));
  const series = report.gap.filter(one => byProcess.has(one.of)).sort((a, b) => byProcess.get(b.of).peak - byProcess.get(a.of).peak);
  let shown = series[0];
  if (!shown) return;
  const parts = () => ['explained by live blocks', 'tidemark itself', 'gap: not explained'].map((name, i) => ({
    name, colour: ['c0', 'other', 'c1'][i], t: Array.from(shown.t), v: shown.v[i + 1],
  }));
  const plot = new Plot(byId('gap-chart'), (c, width, height) =>
    drawSeries(c, width, height, parts(), {stackedTop: Math.max(0, ...shown.v[0])}));
  const legend = () => fillLegend(byId('gap-legend'), parts().map(one => [one.name, one.colour, 'at most ' + formatSize(Math.max(0, ...one.v))]));
  choose.hidden = series.length < 2;
  choose.append(...series.map(one => { const option = element('option', {}); option.textContent = byProcess.get(one.of).name; return option; }));
  choose.addEventListener('change', () => { shown = series[choose.selectedIndex]; plot.render(); legend(); });
  legend();
  section.dataset.ready = '1';
}

function startDevices() {
  const heaps = new Map(report.heaps.map(one => [one.id, one]));
  for (const series of report.devices) {
    const owner = heaps.get(series.of);
    if (!owner) continue;
    const box = element('div', {class: 'chart small'}), legend = element('div', {class: 'legend'}), title = element('h3');
    title.append(nameElement(owner.name + (report.processes.length > 1 ? ', ' + report.processes[owner.process].name : '')));
    byId('devices-charts').append(title, box, legend);
    const lines = [['reserved', 'c1', 1, [6, 3]], ['active', 'c2', 2, [2, 2]], ['allocated', 'c0', 0, []]]
      .filter(line => series.v[line[2]].some(value => value !== null))
      .map(([name, hue, index, dash]) => ({name, colour: hue, dash, t: Array.from(series.t), v: series.v[index]}));
    const used = report.used.find(one => one.of === series.of);
    if (used) lines.push({name: 'occupied on the device by the process', colour: 'c3', dash: [9, 3, 2, 3], t: Array.from(used.t), v: used.v[0]});
    const marks = report.ooms.filter(oom => oom[1] === null || oom[3] === series.of).map(oom => [oom[0], 'out of memory']);
    new Plot(box, (c, width, height) => drawSeries(c, width, height, lines, {marks}));
    fillLegend(legend, lines.map(line => [line.name, line.colour, 'at most ' + formatSize(Math.max(0, ...line.v))]));
    byId('devices-none').hidden = true;
  }
  byId('devices').hidden = !report.devices.length && !report.ooms.length;
}

function startSteps() {
  const box = byId('steps-chart');
  if (!box) return;
  new Plot(box, (c, width, height) => drawSteps(c, width, height, report.steps));
  const legend = element('div', {class: 'legend'});
  box.after(legend);
  fillLegend(legend, [['peak in the step', 'c4'], ['live at its end', 'c0'], ['allocated in it and live at its end', 'c1']]);
}

function startRanks() {
  if (!report.ranks) return;
  const ranked = report.processes.some(one => one.rank >= 0), number = name => Number.parseInt(name.replace(/^rank /, ''), 10);
  let rows = report.ranks.names.map((name, i) => ({name, live: report.ranks.live[i]})).filter(row => row.name !== 'other' || Math.max(...row.live) > 0);
  if (ranked) rows = rows.sort((a, b) => number(a.name) - number(b.name) || a.name.localeCompare(b.name));
  const highest = Math.max(1, ...rows.map(row => Math.max(...row.live))), box = byId('ranks-chart');
  if (!ranked) byId('ranks-title').textContent = 'Processes side by side';
  byId('ranks').hidden = false;
  box.style.height = Math.min(520, Math.max(90, rows.length * 18 + 44)) + 'px';
  let s;
  new Plot(box, (c, width, height) => { s = drawRanks(c, width, height, rows, highest); });
  const rest = `Darker is more: at most ${formatSize(highest)}.`;
  byId('ranks-detail').textContent = rest;
  box.addEventListener('pointermove', event => {
    const at = box.getBoundingClientRect(), index = Math.floor((event.clientY - at.top - s.top) / (s.bottom - s.top) * rows.length);
    const point = nearestPoint(s.time(event.clientX - at.left)), row = rows[index];
    if (row) byId('ranks-detail').replaceChildren(nameElement(row.name), `: ${formatSize(row.live[point])} at ${formatTime(report.grid[point] - report.start)}`);
  });
  box.addEventListener('pointerleave', () => { byId('ranks-detail').textContent = rest; });
}

// --- keys that work everywhere ---

function startKeys() {
  byId('help').addEventListener('click', () => byId('keys').showModal());
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('keys').open) return;
    if (event.target.matches('input, select')) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const number = '12345'.indexOf(event.key);
    const actions = {
      '/': () => byId('search').focus(), i: () => setInverted(!flame.inverted), t: toggleTheme, p: toPeak, '?': () => byId('keys').showModal(),
    };
    if (number >= 0) setMode(MODES[number][0]);
    else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  });
}

async function start() {
  startTheme();
  document.querySelectorAll('table.sortable').forEach(makeSortable);
  const scopes = byId('scope-table');
  if (scopes) foldTree(scopes);
  try {
    await loadReport();
  } catch (error) {
    byId('readout').textContent = 'The charts need a newer browser (' + error.message + '); the text of this report is complete without them.';
    return;
  }
  document.title = document.querySelector('h1').textContent + ' - tidemark';
  startTimeline();
  startFlame();
  startGap();
  startDevices();
  startSteps();
  startRanks();
  startKeys();
  changed();
  // What was asked for is drawn in the next frame.
  requestAnimationFrame(() => setTimeout(() => {
    performance.mark('tidemark-ready');
    document.documentElement.dataset.ready = '1';
  }));
}

// The text of the page is painted first.
requestAnimationFrame(() => setTimeout(start, 0));
