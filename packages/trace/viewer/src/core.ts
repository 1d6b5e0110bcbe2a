/** Parsing and analysis without the browser; the tests import it. */

export { compareSteps, spread } from "./analysis/compare";
export { findCriticalPath } from "./analysis/critical_path";
export { StepExecutions } from "./analysis/dependencies";
export { holdersAt, holdersOver, memoryLanes, memoryUse } from "./analysis/memory";
export { scopeAt, sumBy, sumByNode, sumByScope } from "./analysis/scopes";
export { matchNodes, matchingEvents } from "./analysis/search";
export { TraceError, listChunks } from "./format/chunks";
export { crc32 } from "./format/crc32";
export { decodeHere, decodeTrace } from "./load/decode";
export { FileParts } from "./load/file_parts";
export { assignRows, sortOrder, upperBound } from "./model/rows";
export { formatBytes, formatDuration, formatTime } from "./view/units";
