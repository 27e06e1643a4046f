;; attack: Uses discarding of memory, which no policy needs.
;; expect: load -> invalid
;; proposal: MEMORY_CONTROL

;; in core:
(func (memory.discard (i32.const 0) (i32.const 65536)))
