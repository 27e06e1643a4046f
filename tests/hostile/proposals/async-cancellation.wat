;; attack: Uses asynchronous cancellation of calls, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_MORE_ASYNC_BUILTINS

;; in component:
(core func (canon subtask.cancel async))
