;; attack: Uses shared memories, which no policy needs.
;; expect: load -> invalid

;; in core:
(memory 1 1 shared)
