// tables.js - tables that can be sorted by their columns, and the tree of scopes, whose branches fold.

function cellValue(row, column) {
  const cell = row.cells[column];
  if (!cell) return '';
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.classList.contains('n') ? -Infinity : cell.textContent.trim();
}

function sortTable(table, column, direction) {
  const body = table.tBodies[0], rows = Array.from(body.rows);
  const values = new Map(rows.map(row => [row, cellValue(row, column)]));
  rows.sort((a, b) => {
    const x = values.get(a), y = values.get(b);
    return direction * (typeof x === 'number' && typeof y === 'number' ? x - y || 0 : String(x).localeCompare(String(y)));
  });
  body.append(...rows);
  for (const head of table.tHead.rows[0].cells) head.removeAttribute('aria-sort');
  table.tHead.rows[0].cells[column].setAttribute('aria-sort', direction > 0 ? 'ascending' : 'descending');
}

// Bytes and counts downward first, names upward.
function makeSortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = element('button', {type: 'button'}, head.textContent);
    if (!head.textContent) return;
    const first = table.tBodies[0].rows[0];
    if (first && first.cells[column] && first.cells[column].classList.contains('n')) head.classList.add('n');
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const isNumber = Array.from(table.tBodies[0].rows).some(row => typeof cellValue(row, column) === 'number');
      const now = head.getAttribute('aria-sort');
      sortTable(table, column, now === 'descending' ? 1 : now === 'ascending' ? -1 : isNumber ? -1 : 1);
    });
  });
}

// --- the tree of scopes ---

function foldTree(table) {
  const rows = Array.from(table.tBodies[0].rows), depthOf = row => Number(row.dataset.depth);
  const show = () => {
    let hidden = Infinity;
    for (const row of rows) {
      const depth = depthOf(row);
      if (depth <= hidden) hidden = Infinity;
      row.hidden = depth > hidden;
      if (!row.hidden && row.dataset.folded) hidden = depth;
    }
  };
  rows.forEach((row, index) => {
    const head = row.cells[0], isParent = index + 1 < rows.length && depthOf(rows[index + 1]) > depthOf(row);
    const button = element(isParent ? 'button' : 'span', {class: 'fold'});
    if (isParent) {
      const fold = folded => {
        if (folded) row.dataset.folded = '1';
        else delete row.dataset.folded;
        button.textContent = folded ? '▸' : '▾';
        button.setAttribute('aria-expanded', String(!folded));
      };
      button.type = 'button';
      button.setAttribute('aria-label', 'inner scopes');
      button.addEventListener('click', () => { fold(!row.dataset.folded); show(); });
      fold(rows.length > 60 && depthOf(row) >= 2);
    }
    head.prepend(button);
  });
  show();
}

// --- functions ---

const FUNCTIONS_SHOWN = 60;

function fillFunctions(table, values, searched) {
  const {self, total} = functionSums(values), all = values.reduce((a, b) => a + b, 0), wanted = searched.trim().toLowerCase();
  const column = Array.from(table.tHead.rows[0].cells).findIndex(head => head.hasAttribute('aria-sort'));
  const key = column === 2 || column === 3 ? total : self;
  const frames = Array.from(total.keys()).filter(frame => total[frame] > 0 && frame > 0 && (!wanted || report.frames.text[frame].toLowerCase().includes(wanted)));
  frames.sort((a, b) => key[b] - key[a] || total[b] - total[a] || a - b);
  const number = value => {
    const cell = element('td', {class: 'n', 'data-v': String(value), title: formatExact(value)});
    cell.textContent = formatSize(value);
    return cell;
  };
  table.tBodies[0].replaceChildren(...frames.slice(0, FUNCTIONS_SHOWN).map(frame => {
    const name = element('th', {scope: 'row'}, element('code', {}, nameElement(report.frames.text[frame])));
    const file = report.frames.file[frame];
    if (file) name.append(' ', element('small', {title: file}, nameElement(file.replace(/^.*\//, '') + (report.frames.line[frame] > 0 ? ':' + report.frames.line[frame] : ''))));
    const share = element('td', {class: 'n', 'data-v': String(total[frame])});
    share.textContent = formatShare(total[frame], all);
    return element('tr', {}, name, number(self[frame]), number(total[frame]), share);
  }));
  if (column >= 0) sortTable(table, column, table.tHead.rows[0].cells[column].getAttribute('aria-sort') === 'ascending' ? 1 : -1);
}
