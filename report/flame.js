// flame.js - the flame graph: call stacks as rectangles as wide as their bytes, callees below their callers; inverted, callers below call sites.

const ROW = 20;

// A tree of frames. `leaf` names the node of each key; children are in a fixed order, largest over the whole run first, so that nothing jumps.
class FrameTree {
  constructor(parent, frame, leaf, order) {
    Object.assign(this, {parent, frame, leaf, count: parent.length});
    this.depth = new Uint16Array(this.count);
    for (let node = 1; node < this.count; node++) this.depth[node] = this.depth[parent[node]] + 1;
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
    const nodes = Array.from({length: this.count - 1}, (_, i) => i + 1).sort((a, b) => value[a] - value[b] || b - a);
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
    this.root = this.selected = 0;
    this.hits = null;
    box.addEventListener('scroll', () => this.plot.render());
    box.addEventListener('pointermove', event => this.hover(event));
    box.addEventListener('pointerleave', () => { document.getElementById('tip').hidden = true; });
    box.addEventListener('click', event => this.click(event));
    box.addEventListener('keydown', event => this.key(event));
    this.setInverted(false);
  }

  setInverted(inverted) {
    this.inverted = inverted;
    const name = inverted ? 'inverted' : 'forward';
    this.tree = this.trees[name] ||= (inverted ? invertedTree : forwardTree)(this.order);
    this.root = this.selected = 0;
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
    this.hits = wanted ? Uint8Array.from(report.frames.text, name => name.toLowerCase().includes(wanted)) : null;
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

  // The rectangles that can be seen: [node, depth, x, width], x and width as shares of the whole.
  layout() {
    const {tree} = this, {value, first, next} = tree, boxes = [], path = [];
    for (let node = this.root; node; node = tree.parent[node]) path.unshift(node);
    boxes.push([0, 0, 0, 1]);
    path.forEach((node, i) => boxes.push([node, i + 1, 0, 1]));
    const whole = value[this.root] || 1, least = 0.4 / Math.max(200, this.box.clientWidth);
    let deepest = path.length;
    const stack = [[this.root, path.length, 0]];
    while (stack.length) {
      const [node, depth, start] = stack.pop();
      let x = start;
      for (let child = first[node]; child >= 0; child = next[child]) {
        const width = value[child] / whole;
        if (width >= least) {
          boxes.push([child, depth + 1, x, width]);
          stack.push([child, depth + 1, x]);
          if (depth + 1 > deepest) deepest = depth + 1;
        }
        x += width;
      }
    }
    this.boxes = boxes;
    this.rows = deepest + 1;
    this.box.style.height = Math.min(560, Math.max(6, this.rows) * ROW + 2) + 'px';
    this.space.style.height = Math.max(0, this.rows * ROW - this.box.clientHeight) + 'px';
    this.plot.render();
    this.tell();
  }

  colourOf(frame) {
    const kind = report.frames.kind[frame];
    return {n: this.colours.native, i: this.colours.inline, p: this.colours.python}[kind] || this.colours.kernel;
  }

  draw(c, width, height) {
    const {tree, hits, boxes} = this, scroll = this.box.scrollTop, names = report.frames.text;
    if (!boxes) return;
    this.colours = Object.fromEntries(['native', 'inline', 'python', 'kernel', 'card', 'hit', 'accent', 'frame-ink', 'soft', 'ink'].map(name => [name, colour(name)]));
    const line = c.measureText('…').width, letter = c.measureText('abcdefghij_').width / 11;
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    for (const [node, depth, share, part] of boxes) {
      const y = depth * ROW - scroll, x = share * width, wide = part * width, frame = tree.frame[node];
      if (y < -ROW || y > height) continue;
      const hit = hits && hits[frame];
      c.globalAlpha = (hits && !hit && node) ? 0.35 : depth <= tree.depth[this.root] && node !== this.root ? 0.6 : 1;
      c.fillStyle = hit ? this.colours.hit : node ? this.colourOf(frame) : this.colours.kernel;
      c.fillRect(x, y + 0.5, Math.max(0.5, wide - (wide > 2 ? 1 : 0)), ROW - 1);
      if (report.frames.kind[frame] === 'p' && wide > 5) {
        c.fillStyle = this.colours.accent;
        c.fillRect(x, y + 0.5, 3, ROW - 1);
      }
      if (wide > 3 * letter + 10) {
        const room = Math.floor((wide - 12 - line) / letter), name = names[frame];
        c.fillStyle = hit ? '#fff' : this.colours['frame-ink'];
        c.fillText(name.length <= room ? name : name.slice(0, Math.max(1, room - 1)) + '…', x + 7, y + ROW / 2 + 0.5, wide - 9);
      }
      c.globalAlpha = 1;
      if (node === this.selected && document.activeElement === this.box) {
        c.strokeStyle = this.colours.ink;
        c.lineWidth = 2;
        c.strokeRect(x + 1, y + 1.5, Math.max(2, wide - 3), ROW - 3);
      }
    }
  }

  nodeAt(event) {
    const box = this.box.getBoundingClientRect(), depth = Math.floor((event.clientY - box.top - 1 + this.box.scrollTop) / ROW);
    const share = (event.clientX - box.left) / this.stick.clientWidth;
    const found = this.boxes.find(([, d, x, part]) => d === depth && share >= x && share < x + part);
    return found ? found[0] : -1;
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
    const shown = this.boxes.filter(([, depth]) => depth === this.tree.depth[node]).sort((a, b) => a[2] - b[2]).map(([n]) => n);
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
