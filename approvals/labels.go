package approvals

import "time"

// LabelsTTL is how long a session's labels are kept after the last time that
// somebody asked for them, to the minute. Whoever remembers them, in the store or
// beside it, keeps them for as long.
const LabelsTTL = 24 * time.Hour
