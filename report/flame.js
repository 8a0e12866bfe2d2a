// flame.js - the flame graph: call stacks as rectangles as wide as their bytes, callees below their callers; inverted, callers below call sites.

const ROW = 20, NAME_DRAWN = 300;

// A tree of frames. `leaf` names the node of each key; children are in a fixed order, largest over the whole run first, so that nothing jumps.
class FrameTree {
  constructor(parent, frame, leaf, order) {
    Object.assign(this, {parent, frame, leaf, count: parent.length});
    this.depth = new Uint16Array(this.count);
    this.rows = 1;
    for (let node = 1; node < this.count; node++) {
      this.depth[node] = this.depth[parent[node]] + 1;
      this.rows = Math.max(this.rows, this.depth[node] + 1);
    }
    this.value = new Float64Array(this.count);
    this.self = new Float64Array(this.count);
    this.fill(order);
    this.orderChildren();
  }

  fill(values) {
    const {value, self, parent, leaf} = this;
    value.fill(0);
    self.fill(0);
    for (let key = 0; key < leaf.length; key++) {
      if (values[key] <= 0) continue;
      value[leaf[key]] += values[key];
      self[leaf[key]] += values[key];
    }
    // A parent has a lower number than its children.
    for (let node = this.count - 1; node > 0; node--) value[parent[node]] += value[node];
  }

  orderChildren() {
    const {parent, value} = this;
    this.first = new Int32Array(this.count).fill(-1);
    this.next = new Int32Array(this.count).fill(-1);
    const nodes = Uint32Array.from({length: this.count - 1}, (_, i) => i + 1).sort((a, b) => value[a] - value[b] || b - a);
    for (const node of nodes) {
      this.next[node] = this.first[parent[node]];
      this.first[parent[node]] = node;
    }
  }
}

// Nodes are made as paths are followed; those of one parent and one function are one.
class TreeBuilder {
  constructor() {
    this.parent = [0];
    this.frame = [0];
    this.known = new Map();
  }

  child(at, frame) {
    const name = at * report.frames.text.length + frame;
    let child = this.known.get(name);
    if (child === undefined) {
      child = this.parent.length;
      this.known.set(name, child);
      this.parent.push(at);
      this.frame.push(frame);
    }
    return child;
  }
}

function forwardTree(order) {
  const builder = new TreeBuilder(), {parent, frame} = report.nodes, place = [0];
  for (let node = 1; node < parent.length; node++) place.push(builder.child(place[parent[node]], frame[node]));
  return new FrameTree(builder.parent, builder.frame, report.keys.node.map(node => place[node]), order);
}

// From the site outward: callers below the function that asked for the memory.
function invertedTree(order) {
  const {nodes, keys} = report, builder = new TreeBuilder();
  const leaf = keys.node.map((innermost, key) => {
    let node = innermost, at = 0;
    while (node && nodes.frame[node] !== keys.site[key]) node = nodes.parent[node];
    for (node = node || innermost; node; node = nodes.parent[node]) at = builder.child(at, nodes.frame[node]);
    return at;
  });
  return new FrameTree(builder.parent, builder.frame, leaf, order);
}

class Flame {
  constructor(box, told) {
    this.box = box;
    this.told = told;
    this.stick = box.appendChild(element('div', {class: 'stick'}));
    this.space = box.appendChild(element('div', {class: 'space'}));
    this.plot = new Plot(this.stick, (c, width, height) => this.draw(c, width, height));
    const everything = keyValues('allocated', 0, [0, report.points - 1], null);
    this.order = everything.map((bytes, key) => Math.max(bytes, report.keys.allocated[key]));
    this.trees = {};
    this.widths = new Float32Array(report.frames.text.length);
    this.lower = report.frames.text.map(name => name.toLowerCase());
    this.root = this.selected = 0;
    this.hits = null;
    box.addEventListener('scroll', () => { this.scroll = box.scrollTop; this.plot.render(); });
    for (const kind of ['focus', 'blur']) box.addEventListener(kind, () => { this.focused = kind === 'focus'; this.plot.render(); });
    box.addEventListener('pointermove', event => this.hover(event));
    box.addEventListener('pointerleave', () => { document.getElementById('tip').hidden = true; });
    box.addEventListener('click', event => this.click(event));
    box.addEventListener('keydown', event => this.key(event));
    this.setInverted(false);
    // The other tree is made while nobody waits for it.
    (window.requestIdleCallback || setTimeout)(() => this.treeOf(true));
  }

  treeOf(inverted) {
    return this.trees[inverted ? 'inverted' : 'forward'] ||= (inverted ? invertedTree : forwardTree)(this.order);
  }

  // The box is as tall as the whole tree needs, whatever part of it is shown: what lies below does not jump.
  setInverted(inverted) {
    this.inverted = inverted;
    this.tree = this.treeOf(inverted);
    this.root = this.selected = 0;
    this.box.style.height = Math.min(560, Math.max(6, this.tree.rows) * ROW + 2) + 'px';
    if (this.values) this.show(this.values);
  }

  show(values) {
    this.values = values;
    this.tree.fill(values);
    if (!this.tree.value[this.root]) this.root = 0;
    this.layout();
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    this.hits = wanted ? Uint8Array.from(this.lower, name => name.includes(wanted)) : null;
    this.plot.render();
  }

  // Bytes under the functions that were searched for, each byte once.
  found() {
    const {tree, hits} = this, covered = new Uint8Array(tree.count);
    let sum = 0;
    for (let node = 1; hits && node < tree.count; node++) {
      covered[node] = covered[tree.parent[node]] || hits[tree.frame[node]];
      if (covered[node] && !covered[tree.parent[node]]) sum += tree.value[node];
    }
    return sum;
  }

  // --- what is where ---

  // The rectangles that can be seen, row by row, each from left to right: node, x, width; x and width as shares of the whole.
  layout() {
    const {tree} = this, {value, first, next} = tree, rows = [];
    for (let node = this.root; node; node = tree.parent[node]) rows.unshift([node, 0, 1]);
    rows.unshift([0, 0, 1]);
    const whole = value[this.root] || 1, least = 0.4 / Math.max(200, this.plot.width);
    for (let row = rows[rows.length - 1]; row.length; row = rows[rows.length - 1]) {
      const below = [];
      for (let i = 0; i < row.length; i += 3) {
        let x = row[i + 1];
        for (let child = first[row[i]]; child >= 0; child = next[child]) {
          const width = value[child] / whole;
          if (width >= least) below.push(child, x, width);
          x += width;
        }
      }
      rows.push(below);
    }
    rows.pop();
    this.rows = rows;
    this.extend(rows.length * ROW);
    this.plot.render();
    this.tell();
  }

  // What is taller than the box can be scrolled to.
  extend(tall) {
    if (tall === this.tall) return;
    this.tall = tall;
    this.space.style.height = Math.max(0, tall - Number.parseInt(this.box.style.height, 10) + 2) + 'px';
  }

  colourOf(frame) {
    const kind = report.frames.kind[frame];
    return {n: this.colours.native, i: this.colours.inline, p: this.colours.python}[kind] || this.colours.kernel;
  }

  draw(c, width, height) {
    if (!this.rows) return;
    const scroll = this.scroll || 0, last = Math.min(this.rows.length, Math.ceil((scroll + height) / ROW));
    this.colours = Object.fromEntries(['native', 'inline', 'python', 'kernel', 'hit', 'accent', 'frame-ink', 'ink'].map(name => [name, colour(name)]));
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    c.direction = 'ltr';
    for (let depth = Math.max(0, Math.floor(scroll / ROW)); depth < last; depth++) this.drawRow(c, width, depth, depth * ROW - scroll);
    c.globalAlpha = 1;
  }

  drawRow(c, width, depth, y) {
    const {tree, hits, colours} = this, row = this.rows[depth];
    let covered = -1;
    for (let i = 0; i < row.length; i += 3) {
      const node = row[i], x = row[i + 1] * width, wide = row[i + 2] * width, frame = tree.frame[node], hit = hits && hits[frame];
      // Of many in one column of pixels the first is drawn.
      if (x + wide < covered) continue;
      covered = x + Math.max(0.5, wide);
      c.globalAlpha = (hits && !hit && node) ? 0.35 : depth <= tree.depth[this.root] && node !== this.root ? 0.6 : 1;
      c.fillStyle = hit ? colours.hit : node ? this.colourOf(frame) : colours.kernel;
      c.fillRect(x, y + 0.5, Math.max(0.5, wide - (wide > 2 ? 1 : 0)), ROW - 1);
      if (report.frames.kind[frame] === 'p' && wide > 5) {
        c.fillStyle = colours.accent;
        c.fillRect(x, y + 0.5, 3, ROW - 1);
      }
      if (wide > 30) {
        c.fillStyle = hit ? '#fff' : colours['frame-ink'];
        this.drawName(c, frame, x + 7, y + ROW / 2 + 0.5, wide - 12);
      }
      if (node === this.selected && this.focused) {
        c.globalAlpha = 1;
        c.strokeStyle = colours.ink;
        c.lineWidth = 2;
        c.strokeRect(x + 1, y + 1.5, Math.max(2, wide - 3), ROW - 3);
      }
    }
  }

  // Each name is measured once; one that is too long gets an ellipsis. No row has room for more than its first letters.
  drawName(c, frame, x, y, room) {
    const name = report.frames.text[frame].slice(0, NAME_DRAWN);
    const wide = this.widths[frame] ||= c.measureText(name).width || 1;
    if (wide <= room) c.fillText(name, x, y);
    else c.fillText(name.slice(0, Math.max(1, Math.floor(name.length * room / wide) - 1)) + '…', x, y, room);
  }

  nodeAt(event) {
    const box = this.box.getBoundingClientRect(), row = this.rows[Math.floor((event.clientY - box.top - 1 + this.box.scrollTop) / ROW)] || [];
    const share = (event.clientX - box.left) / this.plot.width;
    for (let i = 0; i < row.length; i += 3) if (share >= row[i + 1] && share < row[i + 1] + row[i + 2]) return row[i];
    return -1;
  }

  // --- words ---

  whereOf(frame) {
    const {file, line} = report.frames;
    return file[frame] ? file[frame] + (line[frame] > 0 ? ':' + line[frame] : '') : '';
  }

  describe(node) {
    const {tree} = this, frame = tree.frame[node], all = tree.value[0];
    return [report.frames.text[frame], `${formatSize(tree.value[node])} (${formatExact(tree.value[node])}), ${formatShare(tree.value[node], all)} of what is shown`
      + (tree.self[node] > 0 && !this.inverted ? `; self ${formatSize(tree.self[node])}` : ''), this.whereOf(frame)];
  }

  tell() {
    const node = this.selected || this.root;
    const detail = document.getElementById('flame-detail');
    if (!node) detail.textContent = this.tree.value[0] ? '' : 'Nothing to show here.';
    else {
      const [name, size, where] = this.describe(node);
      detail.replaceChildren(element('b', {}, nameElement(name)), ' ', size, where ? ' · ' : '', nameElement(where));
    }
    document.getElementById('flame-reset').hidden = !this.root;
    this.told();
  }

  hover(event) {
    const tip = document.getElementById('tip'), node = this.nodeAt(event);
    tip.hidden = node < 0;
    if (node < 0) return;
    tip.replaceChildren(...this.describe(node).filter(Boolean).map(text => element('div', {}, nameElement(text))));
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
  }

  // --- moving about ---

  zoom(node) {
    this.root = node;
    this.selected = node;
    this.layout();
    this.box.scrollTop = Math.max(0, (this.tree.depth[node] - 3) * ROW);
  }

  click(event) {
    const node = this.nodeAt(event);
    if (node >= 0) this.zoom(node === this.root ? this.tree.parent[node] : node);
  }

  widestChild(node) {
    let best = -1;
    for (let child = this.tree.first[node]; child >= 0; child = this.tree.next[child]) {
      if (this.tree.value[child] > 0 && (best < 0 || this.tree.value[child] > this.tree.value[best])) best = child;
    }
    return best;
  }

  sibling(node, step) {
    const shown = (this.rows[this.tree.depth[node]] || []).filter((_, i) => i % 3 === 0);
    return shown[shown.indexOf(node) + step] ?? node;
  }

  key(event) {
    const at = this.selected, moves = {
      ArrowDown: () => this.widestChild(at), ArrowUp: () => this.tree.parent[at],
      ArrowRight: () => this.sibling(at, 1), ArrowLeft: () => this.sibling(at, -1),
    };
    if (event.key in moves) {
      const node = moves[event.key]();
      if (node >= 0) this.selected = node;
      const y = this.tree.depth[this.selected] * ROW;
      if (y < this.box.scrollTop || y > this.box.scrollTop + this.box.clientHeight - ROW) this.box.scrollTop = y - this.box.clientHeight / 2;
      this.plot.render();
      this.tell();
    } else if (event.key === 'Enter') this.zoom(this.selected);
    else if (event.key === 'Escape' || event.key === 'Backspace') this.zoom(this.tree.parent[this.root]);
    else return;
    event.preventDefault();
  }
}

// --- functions, as a table ---

// For each key its frames, each once.
function framesOfKeys() {
  const {nodes, keys} = report;
  return keys.node.map(node => {
    const seen = new Set();
    for (let n = node; n; n = nodes.parent[n]) seen.add(nodes.frame[n]);
    return Uint32Array.from(seen);
  });
}

function functionSums(values) {
  report.framesOfKeys ||= framesOfKeys();
  const self = new Float64Array(report.frames.text.length), total = new Float64Array(report.frames.text.length);
  values.forEach((bytes, key) => {
    if (bytes <= 0) return;
    self[report.keys.site[key]] += bytes;
    for (const frame of report.framesOfKeys[key]) total[frame] += bytes;
  });
  return {self, total};
}
