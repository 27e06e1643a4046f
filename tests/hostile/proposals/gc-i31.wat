;; attack: Uses small integers as references, which no policy needs.
;; expect: load -> invalid
;; proposal: GC

;; in core:
(func (result i31ref) (ref.i31 (i32.const 1)))
