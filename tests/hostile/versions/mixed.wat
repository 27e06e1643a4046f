;; attack: A good policy with one more stage of a later version.
;; expect: load -> version

;; in exports:
(export "pointsman:policy/worker-filter@0.1.1" (instance $score_exported))
