"""Questions, each with a text that answers it, or is about the same thing; and questions that such
a text does not answer, although it has a word or a subject in common with them.

They were written for this. Each text is about something else than all others, so a question and any
other text are unrelated.
"""

from __future__ import annotations

PAIRS = (
    (
        "why does login fail after a password reset",
        "The session cookie is issued before the new password hash is stored, so the first sign-in after a reset is refused.",
    ),
    ("how long are backups kept", "Nightly snapshots of the database stay for thirty days, monthly ones for a year."),
    (
        "speed up the vector search",
        "Scanning int8 vectors in blocks that fit the processor's cache made nearest-neighbour queries seventy times faster.",
    ),
    (
        "which port does the metrics endpoint use",
        "Prometheus scrapes the service at 9102 under /metrics; nothing else listens there.",
    ),
    (
        "the build is slow on the continuous integration server",
        "Caching the compiled dependencies between CI runs cut the pipeline from nine minutes to three.",
    ),
    (
        "rotate the signing keys",
        "Certificates for code signing are replaced every ninety days; the old key stays valid for a week so that caches can follow.",
    ),
    (
        "users see prices in the wrong currency",
        "The shop falls back to US dollars whenever the visitor's country cannot be derived from the address.",
    ),
    (
        "memory keeps growing in the worker",
        "Each job appended its log lines to a module-level list that nobody emptied, which leaked about two megabytes an hour.",
    ),
    (
        "can I use the program without internet access",
        "Everything runs offline: the embedding model is part of the package and nothing is downloaded at start.",
    ),
    (
        "dark mode makes text unreadable",
        "In the night theme, links had a contrast of only 2.1 to 1 against the background; they are light blue now.",
    ),
    ("how do I undo a merge", "git revert -m 1 takes back what a merge commit brought, and keeps the history."),
    (
        "decide between REST and GraphQL",
        "We chose plain HTTP resources over a graph query language because our clients need few, stable views.",
    ),
    (
        "mail notifications arrive twice",
        "The queue redelivers a message when the handler takes longer than the visibility timeout, so people got the same e-mail again.",
    ),
    ("who may delete a project", "Only owners can remove a project for good; maintainers can archive it."),
    (
        "the map does not load on mobile phones",
        "Tiles were requested over plain HTTP, which phone browsers block on a secure page.",
    ),
    (
        "estimate the cost of object storage",
        "A terabyte in the bucket is about twenty-three dollars a month, plus nine cents for each gigabyte that leaves it.",
    ),
    (
        "dates are off by one day in the report",
        "Midnight in local time was converted to UTC before it was cut to a date, which moved what is east of Greenwich to the day before.",
    ),
    (
        "add a new language to the interface",
        "Copy messages/en.po to the new locale, translate the entries, and list the code in LANGUAGES.",
    ),
    (
        "what happens when the disk is full",
        "Writes are refused with a clear error before anything is changed, and reading goes on.",
    ),
    (
        "import customers from a spreadsheet",
        "The CSV importer expects the columns name, street, city and postal code, separated by semicolons.",
    ),
    (
        "tests fail only on Windows",
        "Path comparisons used forward slashes, which never match on a machine whose separator is a backslash.",
    ),
    ("limit requests for each client", "A token bucket of one hundred calls a minute throttles every API key."),
    (
        "search finds nothing for plural words",
        "Stemming was off, so 'invoices' did not match documents that say 'invoice'.",
    ),
    (
        "replace the old logging library",
        "structlog takes the place of our home-grown logger; every line is JSON with a request id.",
    ),
    (
        "why do we not use a foreign key there",
        "Rows of different branches may be merged in any order, and a constraint between tables would refuse an intermediate state.",
    ),
    (
        "animations stutter when scrolling",
        "Changing the top property forces a layout in each frame; a transform runs on the compositor.",
    ),
    (
        "payment was declined but the order went through",
        "The webhook about the failed charge came before the order row was committed, and was ignored as unknown.",
    ),
    ("how to cite a dataset", "Each release of the data has a DOI; name the authors, the year and that identifier."),
    (
        "pick a license for the library",
        "Apache 2.0 allows commercial use and grants patents, which is why our legal team prefers it over GPL.",
    ),
    (
        "the printer cuts off the last column",
        "Receipts are eighty millimetres wide, and the table was laid out for letter paper.",
    ),
    (
        "upgrade Python without breaking things",
        "We test the next interpreter version in a separate job for one month before it becomes the default.",
    ),
    (
        "restrict uploads to images",
        "The gallery accepts PNG, JPEG and WebP by their magic bytes, whatever the extension says.",
    ),
    (
        "why is the graph empty on Mondays",
        "The weekly aggregation truncates its table on Sunday night and refills it only at noon the next day.",
    ),
    (
        "make the command line complete names",
        "Source the completion script in your shell's startup file, and press tab behind a partial argument.",
    ),
    (
        "two people edited the same paragraph",
        "Concurrent changes of one passage become a conflict with both versions, and a person decides.",
    ),
    (
        "battery drains quickly with the app open",
        "Polling the location every second kept the GPS awake; once a minute is enough in the background.",
    ),
    (
        "secrets ended up in the repository",
        "An access token was committed by mistake; it was revoked, and a hook now refuses strings that look like keys.",
    ),
    (
        "sort names with accents correctly",
        "Use the Unicode collation algorithm instead of comparing bytes, so that Ö stands with O.",
    ),
    (
        "how are invoices numbered",
        "Bills get consecutive numbers within a year without gaps, because the tax office demands it.",
    ),
    (
        "container exits immediately after start",
        "The entry point script lacked the executable bit, so the image stopped with code 126.",
    ),
    (
        "reduce the size of the download",
        "Leaving out debug symbols and compressing with zstd made the installer forty percent smaller.",
    ),
    (
        "prevent double clicks on submit",
        "The form's button is disabled as soon as it was pressed, and each submission carries a nonce.",
    ),
    (
        "connection to the database times out at night",
        "The firewall drops idle TCP connections after an hour; the pool sends a keepalive every ten minutes now.",
    ),
    (
        "write documentation for newcomers",
        "A getting-started guide should lead from installation to a first success in five minutes.",
    ),
    (
        "audio is out of sync with the video",
        "Variable frame rate recordings drift by two seconds an hour unless timestamps are rewritten.",
    ),
    (
        "which users have not signed in for a year",
        "Accounts without a visit in twelve months are listed by the inactive-members query and get a reminder.",
    ),
    (
        "remove personal data on request",
        "An erasure request anonymises name, address and phone number within thirty days, as the GDPR wants.",
    ),
    (
        "chart colours for colour-blind readers",
        "The palette avoids red next to green and varies lightness, so that people with deuteranopia can tell lines apart.",
    ),
    (
        "retry failed network calls",
        "Exponential backoff with jitter, five attempts at most, keeps clients from hammering a recovering service.",
    ),
    (
        "monitor the temperature of the server room",
        "A sensor on the rack reports degrees every minute and alarms above twenty-eight Celsius.",
    ),
    (
        "split the monolith into services",
        "Billing was extracted first, because it has few dependencies on the rest of the application.",
    ),
    (
        "recover a deleted branch",
        "The reflog still names the commit that the branch pointed to; make a branch there again.",
    ),
    (
        "explain the scoring formula",
        "Points add up as one minus the product of the remaining doubts, so no single item exceeds one.",
    ),
    (
        "keyboard shortcuts for the editor",
        "Control and K opens the command palette, Control and slash comments a line.",
    ),
    ("robots index our staging site", "The test environment lacked a noindex header, and search engines listed it."),
    (
        "how many seats does the hall have",
        "The auditorium holds four hundred and twenty people, thirty of them in wheelchairs.",
    ),
    (
        "parse configuration with comments",
        "JSON has none, so settings moved to TOML, which allows remarks and multi-line strings.",
    ),
    (
        "validate phone numbers",
        "Numbers are normalised to the E.164 format with a library instead of a regular expression of our own.",
    ),
    (
        "drop support for the old browser",
        "Fewer than one percent of visits came from Internet Explorer, so its polyfills were removed.",
    ),
    (
        "balance load between regions",
        "DNS answers with the nearest data centre, and health checks take a failing one out of rotation.",
    ),
)

UNANSWERED = (
    "does the cookie banner hide the menu on small screens",
    "how many people work the night shift in the warehouse",
    "which graphics cards does the game support, and how much cache do they need",
    "who fixed the harbour light on the pier",
    "how long does a compiled query plan stay valid",
    "can I sign a contract with my phone",
    "which shops are open on a holiday in this country",
    "what is on the list of books for the course",
    "where can I download the timetable of the trains",
    "how do I change a light bulb in the hallway",
    "what does the history museum show about the merchants",
    "how many clients visited the stable last year",
    "why does the queue at the counter take so long on Fridays",
    "do the owners of dogs pay a tax for them",
    "which tiles are best for a bathroom floor",
    "how many gigabytes does the film have in the best quality",
    "when does the sun rise at midnight in the north",
    "how do I list the messages of a mailing list",
    "how do I learn to read and write another alphabet",
    "which columns of the temple were restored",
    "how do I sharpen the blade of the slasher",
    "where can I buy a bucket of paint",
    "how do I get an invoice for my ticket of the conference",
    "how many lines has the underground of the city",
    "may two branches of a bank merge their offices",
    "how do I print the top of the page in colour",
    "what is the order of the planets",
    "which authors were read most this year",
    "does the patent for this drug end soon",
    "how thick is letter paper",
    "when does the job interview take place",
    "which photographs hang in the gallery now",
    "when does the table tennis club meet on Sundays",
    "how do I start a shell company",
    "who won the conflict between the two kingdoms",
    "how far is the next location of the restaurant",
    "where do I buy a token for the washing machine",
    "how is the letter O pronounced in Swedish",
    "what do I need for the tax return of a small office",
    "where is the entry to the car park",
    "how do I get debug output of the compiler",
    "which buttons does the new remote control have",
    "how do firewalls in buildings hold back a fire",
    "which guide shows visitors around the castle",
    "how many frames per second does the camera record",
    "how do I open a savings account for a child",
    "how do I order a new name plate for the door",
    "which trees have red leaves in autumn",
    "which services does the church offer at Easter",
    "how hot may the water in the aquarium be",
    "how do I apply for a job in the billing department",
    "where did the commit message template go that the editor showed",
    "how many points does a team get for a draw",
    "who has control over the palace gardens",
    "which engine does the new test car have",
    "how many wheelchairs does the hospital buy a year",
    "who made the remark about the settings of the opera",
    "which phone has the best battery",
    "how many explorers reached the south pole",
    "where is the centre of the earth's rotation",
)
"""Each has a word or a subject in common with the text of the pair at its place, but no answer."""
