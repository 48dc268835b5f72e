/** Every word of the pages in both languages. Paths, formats and messages of the engine stay as they are. */
import { signal } from "@preact/signals";

export type Language = "en" | "zh";

const DICTIONARY = {
  overview: ["Overview", "总览"],
  graph: ["Graph", "结构图"],
  trend: ["Trend", "趋势"],
  candidate: ["candidate", "待查"],
  reference: ["reference", "参考"],
  introduced: ["introduced", "引入"],
  suspect: ["suspect", "可疑"],
  inherited: ["inherited", "继承"],
  normal: ["normal", "正常"],
  equal: ["equal", "相等"],
  inconclusive: ["inconclusive", "无法判定"],
  unmatched: ["unmatched", "未匹配"],
  nothing: ["not in the selection", "不在所选范围内"],
  clean: ["clean", "无异常"],
  "inherited only": ["inherited only", "仅有继承"],
  source: ["source", "源头"],
  sources: ["sources", "源头"],
  independentSources: ["Independent sources", "各自独立的源头"],
  rulerHint: ["ruler: error in ε on a log scale, shaded up to the bound", "标尺：误差（ε，对数），阴影至界限"],
  allLayers: ["All layers, forward and backward", "所有层，前向与反向"],
  stripHint: ["one cell = one module in one layer, coloured by its worst record", "一格 = 一层中的一个模块，以最差记录着色"],
  atStep: ["at step", "步"],
  coverage: ["Coverage", "覆盖率"],
  minimum: ["minimum to judge a run", "判定所需下限"],
  matched: ["Matched", "已匹配"],
  aligned: ["Aligned", "已对齐"],
  judged: ["Judged", "已判定"],
  ofRecords: ["of", "／"],
  records: ["records", "条记录"],
  verdicts: ["Verdicts", "判定"],
  findings: ["Findings", "发现"],
  differs: ["What else differs", "其他差异"],
  evidence: ["evidence", "证据"],
  reaches: ["stands for", "代表"],
  pairs: ["pairs", "对"],
  site: ["site", "位置"],
  error: ["error ε", "误差 ε"],
  bound: ["bound ε", "界限 ε"],
  boundFrom: ["bound from", "界限来源"],
  why: ["why", "原因"],
  trendOf: ["Trend of this node", "该节点的趋势"],
  openInGraph: ["Open in graph", "在结构图中打开"],
  step: ["step", "步"],
  microStep: ["micro-step", "微步"],
  rank: ["rank", "rank"],
  all: ["all", "全部"],
  direction: ["direction", "方向"],
  both: ["forward + backward", "前向 + 反向"],
  forward: ["forward", "前向"],
  backward: ["backward", "反向"],
  find: ["Find a node", "查找节点"],
  allVerdicts: ["all verdicts", "全部判定"],
  allClasses: ["all classes", "全部类别"],
  allFormats: ["all formats", "全部格式"],
  noHit: ["No node has this name.", "没有叫这个名字的节点。"],
  hits: ["found", "个结果"],
  elsewhere: ["its partner is elsewhere", "其对应节点在别处"],
  stack: ["Stack", "调用栈"],
  matchedBy: ["Matched by", "匹配依据"],
  confidence: ["confidence", "置信度"],
  overSteps: ["Over steps", "各步"],
  noRows: ["Nothing was recorded of this node in the selection.", "所选范围内该节点没有记录。"],
  container: ["container", "容器"],
  pickNode: ["Pick a node to see its tensors.", "选择一个节点以查看其张量。"],
  nonFinite: ["non-fin.", "非有限"],
  copyPath: ["copy path", "复制路径"],
  copied: ["copied", "已复制"],
  keys: ["Keys", "按键"],
  close: ["close", "关闭"],
  theme: ["light or dark", "浅色或深色"],
  language: ["English or Chinese", "中文或英文"],
  nextSource: ["next or previous source", "下一个或上一个源头"],
  move: ["move; close and open", "移动；收起与展开"],
  selectNode: ["select", "选择"],
  stepBack: ["step back or on", "前一步或后一步"],
  noSources: ["Nothing here asks for a look.", "这里没有需要查看的内容。"],
  leftOut: ["more rows are left out, the mildest", "条较轻的记录未显示"],
  ranks: ["ranks", "个 rank"],
  nodes: ["nodes", "个节点"],
  whole: ["whole", "整体"],
  run: ["run", "运行"],
  metric: ["metric", "指标"],
  statistic: ["statistic", "统计量"],
  axes: ["axes", "坐标轴"],
  module: ["module", "模块"],
  colour: ["colour", "着色"],
  scale_z: ["robust z", "稳健 z"],
  scale_log: ["log", "对数"],
  scale_linear: ["linear", "线性"],
  scale_quantile: ["quantile", "分位"],
  pickCell: ["Pick a cell to see its line. Drag to zoom, double-click for the whole.", "选择一格以查看曲线；拖动缩放，双击还原。"],
  allRanks: ["all ranks", "所有 rank"],
  topAnomalies: ["Top anomalies", "主要异常"],
  noAnomalies: ["Nothing leaves its band.", "没有超出正常范围的数值。"],
  outOf: ["outside", "超出"],
  whereTheyPart: ["Where the runs part", "两次运行的分叉处"],
  firstAtStep: ["first at step", "首次在步"],
  agreeUntil: ["they agree until", "此前一致至"],
  sitesAtOnce: ["sites at once", "处同时"],
  mesh: ["Mesh", "并行网格"],
  play: ["play", "播放"],
  pin: ["pin", "固定"],
  logAxis: ["log axis", "对数轴"],
  linearAxis: ["linear axis", "线性轴"],
  alongSteps: ["along steps", "沿步"],
  alongRanks: ["along ranks", "沿 rank"],
  normalBand: ["band: the", "区间：其他"],
  otherRanks: ["other ranks, median \u00b1 4 deviations", "个 rank，中位数 ± 4 倍偏差"],
  thenAlso: ["and", "另有"],
  sitesMore: ["more sites at this step", "处在同一步"],
  absent: ["not recorded", "未记录"],
  unmeasured: ["not measured", "未测量"],
  empty: ["no elements", "无元素"],
  zero: ["all zero", "全零"],
  "NaN made here": ["NaN, made here", "NaN，在此产生"],
  "NaN carried": ["NaN, carried", "NaN，传入"],
  listUnmatched: ["Unmatched", "未匹配"],
} as const satisfies Record<string, readonly [string, string]>;

export type Word = keyof typeof DICTIONARY;

const stored = localStorage.getItem("msprobe-language");
export const language = signal<Language>(
  stored === "zh" || stored === "en" ? stored : navigator.language.startsWith("zh") ? "zh" : "en",
);

language.subscribe((value) => {
  localStorage.setItem("msprobe-language", value);
  document.documentElement.lang = value;
});

/** Gives a word in the language of the reader. */
export function word(key: Word): string {
  return DICTIONARY[key][language.value === "zh" ? 1 : 0];
}

export function isWord(key: string): key is Word {
  return key in DICTIONARY;
}

/** Gives a word where the dictionary has it, else the text itself. */
export function wordOr(text: string): string {
  return isWord(text) ? word(text) : text;
}
