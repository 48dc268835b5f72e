/** The worst verdict along each model, in order of execution; a click goes there. */
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../state";
import { NOTHING, verdictName } from "../verdicts";
import { scrollTo } from "./page";
import { layout, minimap } from "./store";

const BAND = 20;
const GUTTER = 8;

export function Minimap({ view }: { view: { top: number; height: number } }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const data = minimap.value;
  const dark = theme.value;
  useEffect(() => {
    if (canvas.current) draw(canvas.current, data);
  }, [data, dark]);
  const whole = Math.max(1, layout.value.height);
  const frame = (e: HTMLElement | null) => {
    if (!e) return;
    e.style.setProperty("top", `${(view.top / whole) * 100}%`);
    e.style.setProperty("height", `${Math.min(100, (view.height / whole) * 100)}%`);
  };
  return (
    <div
      class="minimap"
      role="presentation"
      onPointerDown={(event) => {
        const box = event.currentTarget.getBoundingClientRect();
        scrollTo((event.clientY - box.top) / box.height);
      }}
    >
      <canvas ref={canvas} width={BAND * 2 + GUTTER} height={600} />
      <div class="window" ref={frame} />
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, bands: number[][]): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  context.clearRect(0, 0, canvas.width, canvas.height);
  bands.forEach((band, side) => {
    const height = canvas.height / Math.max(1, band.length);
    const x = side * (BAND + GUTTER);
    const severities = band.map((severity, at) => ({ severity, at }));
    // The worst are drawn last and never thinner than two pixels.
    severities.sort((a, b) => b.severity - a.severity);
    for (const { severity, at } of severities) {
      if (severity >= NOTHING) continue;
      context.fillStyle = style.getPropertyValue(`--fill-${verdictName(severity)}`).trim() || "#888";
      const size = severity < 2 ? Math.max(2, height) : height;
      context.fillRect(x, at * height, BAND, Math.ceil(size));
    }
  });
}
