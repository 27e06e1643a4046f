;; attack: `pick` traps.
;; expect: pick -> trap

;; in pick:
unreachable
