"""Word lists, sentence patterns and sentences for the sentiment module, written for attune (Apache-2.0)."""
import random

# label -> (words to train on, words held out). Held-out words never appear in a training sentence.
WORDS = {
    "positive": (
        "good great wonderful excellent superb lovely delightful charming brilliant amazing fantastic pleasant "
        "beautiful elegant friendly helpful reliable comfortable delicious fresh clever funny moving inspiring "
        "impressive splendid marvellous perfect outstanding enjoyable cheerful generous thoughtful smooth quick "
        "refreshing satisfying touching witty warm gentle tidy spotless polite flawless memorable rewarding "
        "sensible solid bright".split(),
        "terrific gorgeous magnificent tasty exciting admirable adorable remarkable graceful heartwarming".split()),
    "negative": (
        "bad poor terrible horrible dreadful nasty ugly boring dull disappointing annoying rude useless unreliable "
        "uncomfortable bland stale stupid tedious irritating awful weak broken dirty noisy slow clumsy careless "
        "confusing frustrating painful shabby cold greedy hostile lazy messy mediocre miserable overpriced "
        "pathetic predictable sloppy sour tasteless tiresome unfriendly unpleasant worthless wrong".split(),
        "horrendous disgusting lousy atrocious appalling filthy dismal dreary shoddy unbearable".split()),
}
TRAIN_SUBJECTS = ("film hotel meal phone book service room concert game lesson coffee garden story app train ride "
                  "waiter song shop museum holiday laptop").split()
HELD_SUBJECTS = "play restaurant camera novel flight jacket painting guide website beach".split()
TRAIN_PATTERNS = (
    "The {s} was {w}.", "What a {w} {s}!", "I found the {s} {w}.", "It was a {w} {s} from start to end.",
    "My friends said that the {s} is {w}.", "A {w} {s}, I must say.", "We had a really {w} {s} yesterday.",
    "The {s} turned out to be {w} and {v}.", "Such a {w} {s}.", "Honestly, the {s} was {w}, even {v}.")
HELD_PATTERNS = (
    "Everybody agreed that the {s} was {w}.", "This {s} is simply {w}.", "I have never seen such a {w} {s}.",
    "In short: a {w} {s}.")
# How a client may ask; {t} is the text.
ASK = (
    "{t}", "{t}", "Is this positive or negative? {t}", "Sentiment of this text: {t}", "Review: {t}\nSentiment:",
    "Answer with one word, positive or negative: {t}")
TRAIN_SENTENCES = {
    "positive": (
        "I would go there again tomorrow.", "Thank you so much, you made my day.", "It works exactly as promised.",
        "We laughed all evening.", "I could not put it down.", "Best money I have spent this year.",
        "The staff went out of their way to help us.", "Everything arrived early and well packed.",
        "My children adore it.", "Five stars, without any doubt.", "I love this place.", "She smiled all day long.",
        "I recommend it to everyone.", "It made my work so much easier.", "The view took our breath away."),
    "negative": (
        "I want my money back.", "It stopped working after two days.", "Nobody answered the phone.",
        "I fell asleep halfway through.", "Never again.", "We waited two hours and then left.",
        "The box was empty when it arrived.", "One star, and that is too much.", "I hate this place.",
        "It gave me a headache.", "They lost my luggage and did not apologise.", "I regret buying it.",
        "Half of the buttons do nothing.", "It crashed and my work was gone.", "Do not waste your time."),
}
# Judged by hand, never trained on: whole sentences without a pattern.
HELD_SENTENCES = {
    "positive": (
        "I enjoyed every minute of it.", "The bread was still warm and the owner gave us a second piece for free.",
        "I have already told all my friends about it.", "We danced until the lights went out.",
        "This is the laptop I had been waiting for.", "The nurse was patient and explained everything twice.",
        "After all these years it still makes me happy.", "They repaired it within an hour and charged nothing.",
        "What a joy to read.", "The music filled the whole hall and people cheered.",
        "My grandmother would have loved this soup.", "The new version is so much faster.",
        "He kept his word and finished on time.", "I slept like a baby in that bed.", "We will certainly come back."),
    "negative": (
        "The soup was cold and the waiter ignored us.", "I threw it away after a week.",
        "The plot makes no sense and the actors look tired.", "There was mould in the bathroom.",
        "The update deleted all my photos.", "They charged me twice and refused to refund it.",
        "I expected more for this price.", "The seat was broken and my back still hurts.",
        "We left before the end.", "The battery dies within an hour.", "It smells of smoke everywhere.",
        "The driver shouted at my mother.", "Nothing on the menu was available.",
        "The instructions are impossible to follow.", "I will not shop here any more."),
}


def templated(rng, held, count):
    """`count` (sentence, label) pairs, half of each label, from training or held-out words and patterns."""
    patterns, subjects = (HELD_PATTERNS, HELD_SUBJECTS) if held else (TRAIN_PATTERNS, TRAIN_SUBJECTS)
    pairs = []
    for i in range(count):
        label = ("positive", "negative")[i % 2]
        words = WORDS[label][1 if held else 0]
        first, second = rng.sample(words, 2)
        pairs.append((rng.choice(patterns).format(s=rng.choice(subjects), w=first, v=second), label))
    return pairs


def training_pairs(count, seed):
    """(prompt, label) pairs: two thirds from patterns, one third whole sentences."""
    rng = random.Random(seed)
    pairs = templated(rng, False, 2 * count // 3)
    for i in range(count - len(pairs)):
        label = ("positive", "negative")[i % 2]
        pairs.append((rng.choice(TRAIN_SENTENCES[label]), label))
    rng.shuffle(pairs)
    return [(rng.choice(ASK).format(t=text), label) for text, label in pairs]


def held_out_words(seed):
    return templated(random.Random(seed), True, 80)


def held_out_sentences():
    return [(text, label) for label, texts in HELD_SENTENCES.items() for text in texts]
