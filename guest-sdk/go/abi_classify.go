//go:build wasip1 && pointsman_classify

package pointsman

import (
	"fmt"
	"unsafe"
)

var toClassify ClassifyRequest

func init() {
	classifyReads = func() Reads {
		toClassify.stage, toClassify.reads = "Classify", guest.(Classifier).ClassifyReads()
		return toClassify.reads
	}
}

type (
	optionalNumber struct {
		some   bool
		number float64
	}
	optionalCount struct {
		some  bool
		count uint32
	}
	admission struct {
		policyClass optionalText
		due         optionalNumber
		cost        optionalCount
		change      uint8
		worker      uint32
	}
	rejection struct {
		class         ErrorClass
		publicMessage optionalText
		diagnostic    list
	}
	// A rejection lies where an admission begins.
	verdict struct {
		reject    bool
		admission admission
	}
	resolution struct {
		ticket  uint32
		verdict verdict
	}
	// An error's text lies where decided does.
	verdictResult struct {
		failed  bool
		decided struct {
			some    bool
			verdict verdict
		}
	}
)

func optionalTextOf(text *string) optionalText {
	if text == nil {
		return optionalText{}
	}
	return optionalText{true, textOf(*text)}
}

func verdictOf(given *Verdict) verdict {
	if refused := given.Rejection; refused != nil {
		made := verdict{reject: true}
		message := &refused.PublicMessage
		if *message == "" {
			message = nil
		}
		*(*rejection)(unsafe.Pointer(&made.admission)) = rejection{
			refused.Class, optionalTextOf(message), textOf(refused.Diagnostic),
		}
		return made
	}
	admitted := &given.Admission
	made := admission{
		policyClass: optionalTextOf(admitted.PolicyClass),
		cost:        optionalCount{admitted.SchedulingCostTokens > 0, admitted.SchedulingCostTokens},
		change:      uint8(admitted.Target.Change),
		worker:      admitted.Target.Worker,
	}
	if admitted.DueMs != nil {
		made.due = optionalNumber{true, *admitted.DueMs}
	}
	return verdict{admission: made}
}

var classified verdictResult

//go:wasmexport pointsman:policy/request-classifier@0.1.0#classify
func classify(ticket uint32, n pointer, nl uint32, hasTexts uint32, t pointer, tl uint32) pointer {
	begin()
	defer end()
	toClassify.Ticket = ticket
	toClassify.numbers = at[float64](n, nl)
	toClassify.texts = textsOf(at[optionalText](t, tl), toClassify.texts)
	var given *Verdict
	err := guarded("Classify", func() (err error) {
		given, err = guest.(Classifier).Classify(&toClassify)
		return err
	})
	classified = verdictResult{failed: err != nil}
	switch {
	case err != nil:
		*(*list)(unsafe.Pointer(&classified.decided)) = textOf(err.Error())
	case given != nil:
		classified.decided.some = true
		classified.decided.verdict = verdictOf(given)
	}
	return address(&classified)
}

// The six words are those of the largest case, an abortion; the others have the first of them.
//
//go:wasmexport pointsman:policy/request-classifier@0.1.0#on-event
func onEvent(kind, first, second, third, fourth, fifth, sixth uint32, nowMs float64) pointer {
	begin()
	defer end()
	event := Event{Kind: EventKind(kind), Ticket: first}
	switch event.Kind {
	case Sent, Responding:
		event.Worker = &second
	case Completed:
		event.Worker = &second
		event.ContextTokens = some(third, fourth)
	case Aborted:
		event.Worker = some(second, third)
		if fourth != 0 {
			text := list{fifth, sixth}.text()
			event.Error = &text
		}
	case Workers:
		event.Ticket = 0
		for _, one := range at[struct {
			number, rank uint32
			total        optionalCount
		}](first, second) {
			worker := Worker{Number: one.number, Rank: one.rank}
			if one.total.some {
				worker.TotalKVBlocks = &one.total.count
			}
			event.Workers = append(event.Workers, worker)
		}
	}
	return resolved("OnEvent", func() ([]Resolution, error) { return guest.(Classifier).OnEvent(event, nowMs) })
}

func some(has, count uint32) *uint32 {
	if has == 0 {
		return nil
	}
	return &count
}

//go:wasmexport pointsman:policy/request-classifier@0.1.0#on-tick
func onTick(nowMs float64, p pointer, pl uint32) pointer {
	begin()
	defer end()
	progress := append([]Progress(nil), at[Progress](p, pl)...)
	return resolved("OnTick", func() ([]Resolution, error) {
		ticker, ok := guest.(Ticker)
		if !ok {
			return nil, fmt.Errorf("Manifest has TickMs, and the policy has no method OnTick")
		}
		return ticker.OnTick(nowMs, progress)
	})
}

func resolved(stage string, run func() ([]Resolution, error)) pointer {
	var given []Resolution
	err := guarded(stage, func() (err error) {
		given, err = run()
		return err
	})
	resolutions := make([]resolution, 0, len(given))
	for _, one := range given {
		if one.Verdict == nil {
			err = fmt.Errorf("%s resolved ticket %d without a verdict", stage, one.Ticket)
			break
		}
		resolutions = append(resolutions, resolution{one.Ticket, verdictOf(one.Verdict)})
	}
	return answered(listOf(resolutions), err)
}
