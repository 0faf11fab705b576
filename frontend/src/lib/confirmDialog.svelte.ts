// Every change asks first. One question at a time, shown by parts/Question.svelte.

export interface Field {
  name: string;
  label: string;
  kind: "text" | "number";
  value?: string;
  hint?: string;
  optional?: boolean;
}

export interface Question {
  title: string;
  text: string;
  yes: string;
  danger?: boolean;
  fields?: Field[];
  /** Does it. What it throws is shown in the question, which stays open. Returns what to tell when it is done. */
  act: (values: Record<string, string>) => Promise<string>;
}

class ConfirmDialog {
  question = $state.raw<Question | null>(null);
  said = $state<string | null>(null);
  #timer: ReturnType<typeof setTimeout> | undefined;

  ask(question: Question): void {
    this.question = question;
  }

  close(): void {
    this.question = null;
  }

  tell(text: string): void {
    this.said = text;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.said = null), 6000);
  }
}

export const confirmDialog = new ConfirmDialog();
