// Draws points as tiles: pictures of 256 x 256 pixels, each made once for a zoom and then moved. So panning a million points costs what
// moving some twenty pictures costs, on any machine. In a tile, the colour of a pixel is the mean of its points' colours, and its strength
// grows with their number.
export const SIDE = 256;
const MOST_TILES = 160;
const area = SIDE * SIDE;
const red = new Float32Array(area), green = new Float32Array(area), blue = new Float32Array(area), many = new Uint32Array(area);

export class PointTiles {
  // places: x, y, x, y ...; they lie in the order of the cells of a grid with `cells` rows and columns from `low` to `high`.
  constructor({ places, cells, low, high }) {
    Object.assign(this, { places, cells, low, high, size: (high - low) / cells });
    this.count = places.length / 2;
    this.starts = new Uint32Array(cells * cells + 1);
    for (let i = 0; i < this.count; i++) this.starts[this.row(places[2 * i + 1]) * cells + this.row(places[2 * i]) + 1]++;
    for (let cell = 0; cell < cells * cells; cell++) this.starts[cell + 1] += this.starts[cell];
    this.codes = new Uint8Array(this.count);
    this.shown = new Uint8Array(256).fill(1);
    this.palette = new Uint8Array(256 * 3);
    this.heat = null;
    this.tiles = new Map();
    this.dots = document.createElement("canvas");
    this.dots.width = this.dots.height = SIDE;
  }

  row(value) { return Math.max(0, Math.min(this.cells - 1, Math.floor((value - this.low) / this.size))); }

  // After a change of colours, of what is shown, or of the heat.
  clear() { this.tiles.clear(); }

  // view: left and top in pixels of the whole map at `scale` pixels a unit (y upwards in units, downwards in pixels).
  // Returns whether all of the view is drawn; tiles are made for at most `budget_ms`.
  draw(context, view, width, height, budget_ms) {
    if (this.scale !== view.scale) { this.scale = view.scale; this.clear(); }
    const until = performance.now() + budget_ms;
    let isWhole = true, isFirst = true;
    for (let down = Math.floor(view.top / SIDE); down * SIDE < view.top + height; down++) {
      for (let across = Math.floor(view.left / SIDE); across * SIDE < view.left + width; across++) {
        const key = `${across},${down}`;
        let tile = this.tiles.get(key);
        if (!tile && (isFirst || performance.now() < until)) {
          tile = this.make(across * SIDE, down * SIDE);
          isFirst = false;
          if (this.tiles.size >= MOST_TILES) this.tiles.delete(this.tiles.keys().next().value);
          this.tiles.set(key, tile);
        }
        if (!tile) isWhole = false;
        else if (tile.picture) context.drawImage(tile.picture, across * SIDE - view.left, down * SIDE - view.top);
      }
    }
    return isWhole;
  }

  // Radius of a point in pixels: it grows with the zoom, and is larger where there are few points.
  radius() {
    const base = this.count < 5000 ? 3 : this.count < 40000 ? 2 : this.count < 200000 ? 1 : 0;
    return Math.min(5, base + Math.max(0, Math.floor(Math.log2(this.scale / 400) / 1.3)));
  }

  make(left, top) {
    const radius = this.radius(), touched = this.add(left, top, radius);
    if (!touched && !this.heat) return { picture: null };
    const picture = document.createElement("canvas");
    picture.width = picture.height = SIDE;
    const context = picture.getContext("2d");
    if (this.heat) {
      const side = (this.high - this.low) * this.scale;
      context.drawImage(this.heat, this.low * this.scale - left, -this.high * this.scale - top, side, side);
    }
    if (touched) {
      this.dots.getContext("2d").putImageData(this.image(radius), 0, 0);
      context.globalAlpha = this.heat ? 0.35 : 1;
      context.drawImage(this.dots, 0, 0);
    }
    return { picture };
  }

  // Adds up the points of a tile; returns how many.
  add(left, top, radius) {
    const { places, codes, shown, palette, starts, cells, scale } = this;
    many.fill(0); red.fill(0); green.fill(0); blue.fill(0);
    const dots = disc(radius), margin = radius + 1;
    const from = this.row((left - margin) / scale), to = this.row((left + SIDE + margin) / scale);
    const low = this.row(-(top + SIDE + margin) / scale), high = this.row(-(top - margin) / scale);
    let touched = 0;
    for (let row = low; row <= high; row++) {
      const end = starts[row * cells + to + 1];
      for (let i = starts[row * cells + from]; i < end; i++) {
        const code = codes[i];
        if (!shown[code]) continue;
        const x = Math.floor(places[2 * i] * scale) - left, y = Math.floor(-places[2 * i + 1] * scale) - top;
        if (x < -margin || y < -margin || x >= SIDE + margin || y >= SIDE + margin) continue;
        touched++;
        const r = palette[3 * code], g = palette[3 * code + 1], b = palette[3 * code + 2];
        for (let dot = 0; dot < dots.length; dot += 2) {
          const dx = x + dots[dot], dy = y + dots[dot + 1];
          if (dx < 0 || dy < 0 || dx >= SIDE || dy >= SIDE) continue;
          const at = dy * SIDE + dx;
          many[at]++; red[at] += r; green[at] += g; blue[at] += b;
        }
      }
    }
    return touched;
  }

  image(radius) {
    const image = new ImageData(SIDE, SIDE), bytes = image.data, rest = radius ? 0.35 : 0.5;
    for (let at = 0; at < area; at++) {
      const n = many[at];
      if (!n) continue;
      bytes[4 * at] = red[at] / n; bytes[4 * at + 1] = green[at] / n; bytes[4 * at + 2] = blue[at] / n;
      bytes[4 * at + 3] = 255 * (1 - rest ** Math.min(n, 12));
    }
    return image;
  }

  // The nearest point that is shown, within `reach` units; -1 if there is none.
  nearest(x, y, reach) {
    const { places, codes, shown, starts, cells } = this;
    let found = -1, least = reach * reach;
    for (let row = this.row(y - reach); row <= this.row(y + reach); row++) {
      for (let i = starts[row * cells + this.row(x - reach)]; i < starts[row * cells + this.row(x + reach) + 1]; i++) {
        const square = (places[2 * i] - x) ** 2 + (places[2 * i + 1] - y) ** 2;
        if (square < least && shown[codes[i]]) { least = square; found = i; }
      }
    }
    return found;
  }
}

function disc(radius) {
  const dots = [];
  for (let dy = -radius; dy <= radius; dy++) for (let dx = -radius; dx <= radius; dx++) if (dx * dx + dy * dy <= radius * radius + 0.5) dots.push(dx, dy);
  return Int32Array.from(dots);
}
