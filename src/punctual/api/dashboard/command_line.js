// Command lines as a POSIX shell reads and writes them. Nothing is expanded.

/**
 * The words of a command line.
 * @param {string} text
 * @returns {string[]} raises Error where a quote is not closed
 */
export function words(text) {
  const found = [];
  let word = "", quote = "", isWord = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (quote === "'" ? character === "'" : quote && character === quote) quote = "";
    else if (character === "\\" && quote !== "'" && i + 1 < text.length) {
      const next = text[++i];
      if (next === "\n") continue; // the line goes on
      word += quote && !'$`"\\'.includes(next) ? `\\${next}` : next;
      isWord = true;
    } else if (!quote && (character === "'" || character === '"')) [quote, isWord] = [character, true];
    else if (!quote && /\s/.test(character)) {
      if (isWord) found.push(word);
      [word, isWord] = ["", false];
    } else [word, isWord] = [word + character, true];
  }
  if (quote) throw new Error(`the quote ${quote} is not closed`);
  return isWord ? [...found, word] : found;
}

/** A word as it has to be typed. @param {string} word */
export const typed = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
