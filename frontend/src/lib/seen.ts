// Whether something is in sight: what nobody sees is not asked for.

/** Tells when a node comes into sight or leaves it; the returned function ends that. */
export function whileSeen(node: Element, tell: (seen: boolean) => void): () => void {
  let near = false;
  const say = (): void => tell(near && !document.hidden);
  const observer = new IntersectionObserver((entries) => {
    near = entries.at(-1)?.isIntersecting ?? false;
    say();
  });
  observer.observe(node);
  document.addEventListener("visibilitychange", say);
  return () => {
    observer.disconnect();
    document.removeEventListener("visibilitychange", say);
  };
}
