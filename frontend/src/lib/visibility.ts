// Whether an element is visible: data of hidden ones is not fetched.

/** Tells when a node comes into sight or leaves it; the returned function ends that. */
export function whileVisible(node: Element, tell: (seen: boolean) => void): () => void {
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
