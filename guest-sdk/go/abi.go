//go:build wasip1

package pointsman

import (
	"fmt"
	"unsafe"
)

// The canonical ABI of wit/policy.wit, whose records are the structs below. A pointer of the guest has 32 bits; one of Go's
// on this target has 64.

var guest Definition

// Export makes this the guest's policy. `pointsman policy build` writes the call.
func Export(policy Definition) { guest = policy }

type pointer = uint32

func address[T any](value *T) pointer { return pointer(uintptr(unsafe.Pointer(value))) }

// at is a list of the host's, in memory of cabiRealloc.
func at[T any](start pointer, length uint32) []T {
	if length == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(uintptr(start))), length)
}

// arena is what came in. It is used again once a call has ended, which the next one tells.
var arena struct {
	blocks [][]uint64
	used   int
	ended  bool
}

// room is memory until the end of this call, aligned for every value.
func room(bytes uint32) pointer {
	words := int(bytes+7) / 8
	if arena.ended {
		// The newest block is the largest.
		arena.blocks = arena.blocks[len(arena.blocks)-1:]
		arena.used, arena.ended = 0, false
	}
	last := len(arena.blocks) - 1
	if last < 0 || len(arena.blocks[last])-arena.used < words {
		size := 2 << 10
		if last >= 0 {
			size = 2 * len(arena.blocks[last])
		}
		arena.blocks = append(arena.blocks, make([]uint64, max(size, words)))
		arena.used = 0
		last++
	}
	arena.used += words
	if words == 0 {
		return 8
	}
	return address(&arena.blocks[last][arena.used-words])
}

//go:wasmexport cabi_realloc
func cabiRealloc(old pointer, oldSize, align, size uint32) pointer {
	made := room(size)
	copy(at[byte](made, size), at[byte](old, min(oldSize, size)))
	return made
}

// list is a list or a text.
type list struct {
	start  pointer
	length uint32
}

// kept are Go's values that an answer points to, until the next call.
var kept []any

func listOf[T any](values []T) list {
	if len(values) > 0 {
		kept = append(kept, values)
	}
	return listIn(values)
}

// listIn is a list in memory that lives anyway.
func listIn[T any](values []T) list {
	if len(values) == 0 {
		return list{8, 0}
	}
	return list{address(&values[0]), uint32(len(values))}
}

func textOf(text string) list { return listOf([]byte(text)) }

func (l list) text() string { return string(at[byte](l.start, l.length)) }

// begin forgets what the answer before pointed to; end lets the memory of what came in be used again.
func begin() { clear(kept); kept = kept[:0] }
func end()   { arena.ended = len(arena.blocks) > 0 }

type manifest struct{ name, version, description, schema list }

//go:wasmexport pointsman:policy/policy@0.1.0#describe
func describe() pointer {
	begin()
	defer end()
	said := guest.Manifest()
	answer := []manifest{{
		textOf(said.Name), textOf(said.Version), textOf(said.Description), textOf(schema(guest.Parameters())),
	}}
	return listOf(answer).start
}

type optionalReads struct {
	some                  bool
	facts, texts, signals list
	workers               bool
}

type inputs struct {
	filter, score, pick optionalReads
	exclusiveAffinity   bool
	classify            optionalReads
	ticks               bool
	tickMs              uint32
}

type inputsResult struct {
	failed bool
	// An error's text lies where the inputs begin.
	inputs inputs
}

type configuration struct {
	model, routingGroup list
	role                uint8
	blockSize, seed     uint32
	_                   uint32
	router              Router
	parameters          list
}

var roles = [...]string{"aggregated", "prefill", "decode", "encode"}

//go:wasmexport pointsman:policy/policy@0.1.0#configure
func configure(start pointer) pointer {
	begin()
	defer end()
	given := at[configuration](start, 1)[0]
	answer := make([]inputsResult, 1)
	kept = append(kept, answer)
	if err := guarded("Configure", func() error { return configured(&given) }); err != nil {
		answer[0].failed = true
		*(*list)(unsafe.Pointer(&answer[0].inputs)) = textOf(err.Error())
	} else {
		answer[0].inputs = inputsOf()
	}
	return address(&answer[0])
}

func configured(given *configuration) error {
	if err := readParameters(guest.Parameters(), at[byte](given.parameters.start, given.parameters.length)); err != nil {
		return err
	}
	configurer, ok := guest.(Configurer)
	if !ok {
		return nil
	}
	return configurer.Configure(Setup{
		given.model.text(), given.routingGroup.text(), roles[given.role], given.blockSize, given.seed, given.router,
	})
}

// Filled by the files of the stages that are built.
var (
	filterReads, scoreReads, pickReads, classifyReads func() Reads
)

func inputsOf() inputs {
	said := guest.Manifest()
	return inputs{
		filter:            optionalReadsOf(filterReads),
		score:             optionalReadsOf(scoreReads),
		pick:              optionalReadsOf(pickReads),
		exclusiveAffinity: said.ExclusiveAffinity,
		classify:          optionalReadsOf(classifyReads),
		ticks:             said.TickMs > 0,
		tickMs:            said.TickMs,
	}
}

func optionalReadsOf(reads func() Reads) optionalReads {
	if reads == nil {
		return optionalReads{}
	}
	read := reads()
	return optionalReads{true, namesOf(read.Facts), namesOf(read.Texts), namesOf(read.Signals), read.Workers}
}

func namesOf(names []string) list {
	lists := make([]list, len(names))
	for place, name := range names {
		lists[place] = textOf(name)
	}
	return listOf(lists)
}

// guarded makes an error of a panic.
func guarded(stage string, run func() error) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case mistake:
			err = fmt.Errorf("%s", string(cause))
		default:
			err = fmt.Errorf("%s panicked: %v", stage, cause)
		}
	}()
	return run()
}

// result is that of most functions: a list, a row, or an error's text.
type result struct {
	failed  bool
	payload list
}

var answer result

func answered(payload list, err error) pointer {
	answer = result{false, payload}
	if err != nil {
		answer = result{true, textOf(err.Error())}
	}
	return address(&answer)
}

type optionalText struct {
	some bool
	text list
}

// textsOf are the texts that came in, in memory that is used again.
func textsOf(given []optionalText, before []*string) []*string {
	texts := before[:0]
	for _, one := range given {
		var text *string
		if one.some {
			read := one.text.text()
			text = &read
		}
		texts = append(texts, text)
	}
	return texts
}

// candidates fills those of the call before anew.
func (c *Candidates) given(rows uint32, numbers, workers, texts list) {
	c.Rows = int(rows)
	c.numbers = at[float64](numbers.start, numbers.length)
	c.Workers = at[uint32](workers.start, workers.length)
	c.texts = textsOf(at[optionalText](texts.start, texts.length), c.texts)
}

// zeroed has so many places, all of the zero value, in memory that is used again.
func zeroed[T any](before []T, length uint32) []T {
	if cap(before) < int(length) {
		return make([]T, length)
	}
	before = before[:length]
	clear(before)
	return before
}

//go:wasmimport pointsman:policy/log@0.1.0 log
func hostLog(level uint32, start unsafe.Pointer, length uint32)

// Level is how grave a message is.
type Level uint32

// The levels.
const (
	LogError Level = iota
	LogWarn
	LogInfo
	LogDebug
	LogTrace
)

// Log writes to the policy's bounded log; so does fmt.Println, as LogInfo.
func Log(level Level, message string) {
	hostLog(uint32(level), unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}
