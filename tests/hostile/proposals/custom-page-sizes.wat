;; attack: Uses pages of one byte, which no policy needs.
;; expect: load -> invalid

;; in core:
(memory 1 (pagesize 1))
