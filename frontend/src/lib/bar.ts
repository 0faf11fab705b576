/** A part of a bar of counts, and how it is filled. */
export interface Part {
  word: string;
  look: "pass" | "wrong" | "own" | "unmeasured" | "held" | "off" | "live";
  count: number;
}

/** The parts in words: "3 passed, 1 failed". */
export function told(parts: Part[]): string {
  return parts
    .filter((part) => part.count)
    .map((part) => `${part.count} ${part.word}`)
    .join(", ");
}
