package pointsman

// Classifier is a policy that decides whether, when and how a request enters the queue.
type Classifier interface {
	ClassifyReads() Reads
	// Classify answers a verdict, or nil to defer the request.
	Classify(request *ClassifyRequest) (*Verdict, error)
	// OnEvent hears of what happened, and may resolve deferred requests.
	OnEvent(event Event, nowMs float64) ([]Resolution, error)
}

// Ticker is a classifier that is also called every Manifest.TickMs.
type Ticker interface {
	OnTick(nowMs float64, progress []Progress) ([]Resolution, error)
}

// ClassifyRequest is a request to be classified.
type ClassifyRequest struct {
	Request
	// Ticket is the request's number; tickets count up.
	Ticket uint32
}

// Verdict is an admission, or a rejection where there is one.
type Verdict struct {
	Admission Admission
	Rejection *Rejection
}

// Admit lets a request into the queue as the host would.
func Admit() *Verdict { return &Verdict{} }

// Admission is how a request enters the queue; what is missing leaves the host's own value.
type Admission struct {
	PolicyClass *string
	// DueMs is when the request must have left the queue, on the clock of request.now-ms.
	DueMs *float64
	// SchedulingCostTokens is what the queue charges; 0 for the host's own value.
	SchedulingCostTokens uint32
	Target               Target
}

// Target is what becomes of a request's soft affinity target.
type Target struct {
	Change TargetChange
	// Worker is its number, for SetTarget.
	Worker uint32
}

// TargetChange is what becomes of a target.
type TargetChange uint8

// What becomes of a target.
const (
	KeepTarget TargetChange = iota
	ClearTarget
	SetTarget
)

// Rejection ends a request.
type Rejection struct {
	Class ErrorClass
	// PublicMessage is for the client; empty for the class's own.
	PublicMessage string
	// Diagnostic is for the operator's log.
	Diagnostic string
}

// ErrorClass is the kind of error that the client sees.
type ErrorClass uint8

// The kinds of errors.
const (
	InvalidRequest ErrorClass = iota
	Unauthenticated
	PermissionDenied
	NotFound
	Conflict
	PayloadTooLarge
	UnsupportedMedia
	RateLimited
	CapacityExhausted
	Unavailable
	BackendProtocol
	DeadlineExceeded
	NotImplemented
	Internal
	Cancelled
)

// Resolution ends the deferral of a request.
type Resolution struct {
	Ticket  uint32
	Verdict *Verdict
}

// EventKind is what happened.
type EventKind uint8

// What happens to a request, or to the workers.
const (
	Sent EventKind = iota
	Responding
	Completed
	Aborted
	Workers
)

// Event is what happened to a classified request, or to the workers.
type Event struct {
	Kind          EventKind
	Ticket        uint32
	Worker        *uint32
	ContextTokens *uint32
	Error         *string
	Workers       []Worker
}

// Ended says whether this is the ticket's last event.
func (e Event) Ended() bool { return e.Kind == Completed || e.Kind == Aborted }

// Worker is one registered data-parallel rank.
type Worker struct {
	Number, Rank  uint32
	TotalKVBlocks *uint32
}

// Progress is the prompt and generated tokens of a live request.
type Progress struct {
	Ticket, ContextTokens uint32
}
